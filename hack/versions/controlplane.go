package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// controlPlane builds the control plane of a version, unless it is there, and returns its binary.
func (r *runner) controlPlane(ctx context.Context, version string) (binary string, err error) {
	dir := filepath.Join(r.root, "test", "controlplane")
	if version != versions[len(versions)-1] {
		if dir, err = r.derive(ctx, dir, version); err != nil {
			return "", fmt.Errorf("making the module of %s: %w", version, err)
		}
	}
	out, err := output(exec.CommandContext(ctx, filepath.Join(dir, "build.sh")))
	return strings.TrimSpace(string(out)), err
}

// derive makes a module of the sources in from, with the modules of another version of Kubernetes.
func (r *runner) derive(ctx context.Context, from, version string) (dir string, err error) {
	// build.sh keeps what it builds two folders above its own.
	dir = filepath.Join(r.cache, version, "test", "controlplane")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	for _, pattern := range []string{"build.sh", "*.go", "kubectl/*.go"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if err := copyTo(filepath.Join(dir, filepath.Dir(pattern)), file); err != nil {
				return "", err
			}
		}
	}
	out, err := output(exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version))
	if err != nil {
		return "", err
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	kubernetes, err := os.ReadFile(module.GoMod)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), goMod(kubernetes, version), 0o644); err != nil {
		return "", err
	}
	tidy := exec.CommandContext(ctx, "go", "mod", "tidy")
	tidy.Dir, tidy.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	_, err = output(tidy)
	return dir, err
}

var (
	moduleLine = regexp.MustCompile(`(?m)^module .*$`)
	// staging is what Kubernetes replaces the modules by that are released with it.
	staging = regexp.MustCompile(`=> \./staging/src/(\S+)`)
)

// goMod makes the go.mod of a control plane from that of k8s.io/kubernetes, so that it is compiled with the same
// libraries and the same GODEBUG settings.
func goMod(kubernetes []byte, version string) []byte {
	mod := moduleLine.ReplaceAll(kubernetes, []byte("module github.com/eventd/eventd/test/controlplane"))
	mod = staging.ReplaceAll(mod, []byte("=> $1 v0"+strings.TrimPrefix(version, "v1")))
	return fmt.Appendf(mod, "\nrequire k8s.io/kubernetes %s\n", version)
}

func copyTo(dir, file string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, info.Mode())
}

// output runs a command, whose stderr it passes on, and returns its stdout. An error has it too: "go mod download -json"
// reports its own there.
func output(cmd *exec.Cmd) ([]byte, error) {
	// Not SIGKILL: build.sh stops a compiler and releases a lock.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stdout.Bytes())
	}
	return stdout.Bytes(), nil
}
