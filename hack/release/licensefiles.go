package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/eventd/eventd/hack/release/licenses"
)

// licenseFiles are what goes with a command wherever it is published: the license of s, and a file with
// those of the modules in it, which is written to dir.
func (s source) licenseFiles(ctx context.Context, platform v1.Platform, command, dir string) ([]string, error) {
	text, err := licenses.Of(ctx, licenses.Program{
		Folder: s.dir, Package: "./cmd/" + command, OS: platform.OS, Arch: platform.Architecture,
	})
	if err != nil {
		return nil, fmt.Errorf("the licenses of %s for %v: %w", command, platform, err)
	}
	file := filepath.Join(dir, "THIRD_PARTY_LICENSES")
	return []string{filepath.Join(s.dir, "LICENSE"), file}, os.WriteFile(file, text, 0o644)
}
