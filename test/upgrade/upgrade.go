// Package upgrade has the eventd of the previous release, which tests run beside this one.
//
// The file "previous" names its commit, and says when to replace it. The binary is the one
// that the environment variable EVENTD_PREVIOUS names, else the one that build.sh builds
// from the history of this repository, or has built.
package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	// BinaryEnv names the environment variable with the path of an eventd to use instead
	// of building one.
	BinaryEnv = "EVENTD_PREVIOUS"
	// Version is what a binary of build.sh says that it is.
	Version = "v0.0.0-previous"
)

// Previous returns the path of the previous release's eventd, and builds it if that has not
// been done yet. A binary that cannot be built fails the test. The working directory is a
// folder in test/, as that of a test is.
func Previous(t testing.TB) string {
	t.Helper()
	path, err := Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Build does what Previous does, outside of a test.
func Build(ctx context.Context) (path string, err error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	return build(ctx, filepath.Join("..", "upgrade", "build.sh"))
}

// Commit returns that of the previous release. The working directory is that of Previous.
func Commit() (string, error) {
	file, err := os.ReadFile(filepath.Join("..", "upgrade", "previous"))
	for line := range strings.Lines(string(file)) {
		if !strings.HasPrefix(line, "#") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", errors.Join(errors.New("test/upgrade/previous names no commit"), err)
}

// build runs the script, and returns the path that it prints.
func build(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, script)
	// Not SIGKILL: the script stops a compiler and removes its folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the previous release: %w\n%s", err, stderr.String())
	}
	path := strings.TrimSpace(stdout.String())
	if path == "" {
		return "", errors.New("building the previous release: no path is printed")
	}
	return path, nil
}
