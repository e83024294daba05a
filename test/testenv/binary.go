package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// BinaryEnv names the environment variable with the path of a control plane
// binary to use instead of building one.
const BinaryEnv = "EVENTD_CONTROLPLANE"

// Binary returns the path of the control plane's binary, and builds it if that
// has not been done yet. The progress of the build goes to stderr.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	source, err := controlPlaneSource()
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, filepath.Join(source, "build.sh"))
	// Not SIGKILL: the script stops a compiler and releases a lock.
	build.Cancel = func() error { return build.Process.Signal(syscall.SIGTERM) }
	var stdout bytes.Buffer
	build.Stdout, build.Stderr = &stdout, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building the control plane with %s: %w", build.Path, err)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	return lines[len(lines)-1], nil
}

// Kubectl returns the path of a kubectl of the control plane's version, which
// is built beside it.
func Kubectl(ctx context.Context) (string, error) {
	binary, err := Binary(ctx)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(binary), "kubectl"), nil
}

// controlPlaneSource finds test/controlplane above the working directory, which
// is the package's folder in a test, or else above this source file.
func controlPlaneSource() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			source := filepath.Join(dir, "test", "controlplane")
			if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
				return source, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("no test/controlplane/go.mod above " + strings.Join(starts, " or ") + "; set " + BinaryEnv)
}

// RunKubectl runs kubectl and returns its stdout. An error has all of its output.
func RunKubectl(ctx context.Context, args ...string) (stdout []byte, err error) {
	path, err := Kubectl(ctx)
	if err != nil {
		return nil, err
	}
	stdout, err = exec.CommandContext(ctx, path, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %q: %w\n%s%s", args, err, stdout, exit.Stderr)
	}
	return stdout, err
}

// Kubectl runs kubectl as the administrator, as RunKubectl does.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (stdout []byte, err error) {
	return RunKubectl(ctx, append(args, "--kubeconfig="+c.Kubeconfig())...)
}
