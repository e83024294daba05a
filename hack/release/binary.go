package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// compile builds one command of s for a platform, as hack/static.sh does: the same bytes
// wherever the same Go builds the same source.
func (s source) compile(ctx context.Context, platform v1.Platform, command, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, filepath.Join(s.dir, "hack", "static.sh"), file, "./cmd/"+command)
	build.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "VERSION="+s.version, "COMMIT="+s.commit)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building %s for %v: %w", command, platform, err)
	}
	return nil
}
