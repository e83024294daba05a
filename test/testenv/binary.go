package testenv

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
	// A module that tests itself with this package has the repository elsewhere.
	repository, err := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Dir}}", "github.com/eventd/eventd").Output()
	if err != nil {
		return "", fmt.Errorf("finding the control plane: %w; set %s", err, BinaryEnv)
	}
	build := exec.CommandContext(ctx, filepath.Join(strings.TrimSpace(string(repository)), "test", "controlplane", "build.sh"))
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

// RunKubectl runs the kubectl of the control plane's version, which is built beside it,
// and returns its stdout. An error has all of its output.
func RunKubectl(ctx context.Context, args ...string) (stdout []byte, err error) {
	binary, err := Binary(ctx)
	if err != nil {
		return nil, err
	}
	stdout, err = exec.CommandContext(ctx, filepath.Join(filepath.Dir(binary), "kubectl"), args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %q: %w\n%s%s", args, err, stdout, exit.Stderr)
	}
	return stdout, err
}

// Kubectl runs kubectl as the administrator, as RunKubectl does.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (stdout []byte, err error) {
	return RunKubectl(ctx, append(args, "--kubeconfig="+c.Kubeconfig())...)
}
