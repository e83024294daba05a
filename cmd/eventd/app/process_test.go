package app

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// child is an eventd in its own process.
type child struct {
	cmd    *exec.Cmd
	config *rest.Config
	stderr chan string   // all of stderr, when the process has ended
	lines  chan string   // each line of stderr
	ended  chan struct{} // closed at the end of stderr
}

func startChild(t *testing.T, a *apiserver, more ...string) *child {
	t.Helper()
	c := startEventd(t, a.flags(more...)...)
	c.config.BearerToken = goodToken
	return c
}

// eventdCommand returns a command that runs this binary as eventd, outside of a cluster.
func eventdCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{asEventd + "=1"}
	return cmd
}

// startEventd returns when the process serves.
func startEventd(t *testing.T, flags ...string) *child {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "endpoint")
	c := &child{
		cmd:    eventdCommand(t, append(flags, "--endpoint-kubeconfig="+endpoint)...),
		stderr: make(chan string, 1),
		lines:  make(chan string, 1000),
		ended:  make(chan struct{}),
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(stderr)
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // if it has not ended
		<-c.ended
		_ = c.cmd.Wait()
	})
	awaitFile(t, endpoint)
	if c.config, err = clientcmd.BuildConfigFromFlags("", endpoint); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) read(stderr io.Reader) {
	var all strings.Builder
	scanner := bufio.NewScanner(stderr)
	for scanner.Scan() {
		all.WriteString(scanner.Text() + "\n")
		c.lines <- scanner.Text()
	}
	c.stderr <- all.String()
	close(c.ended)
}

// awaitLine waits until the process has logged a line with want.
func (c *child) awaitLine(t *testing.T, want string) {
	t.Helper()
	for {
		if line := receive(t, "the process logs "+want, c.lines); strings.Contains(line, want) {
			return
		}
	}
}

// end waits for the end of the process.
func (c *child) end(t *testing.T) (stderr string, state *os.ProcessState) {
	t.Helper()
	stderr = receive(t, "the end of the process", c.stderr)
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stderr, c.cmd.ProcessState
}

func TestTerminatedProcessExitsWith0OnceEverythingIsWritten(t *testing.T) {
	a := startAPIServer(t)
	c := startChild(t, a)
	answer := post(t, c.config)
	receive(t, "the write reaches the apiserver", a.creating)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.awaitLine(t, "Shutting down")
	close(a.release)
	if err := receive(t, "the answer", answer); err != nil {
		t.Errorf("the request that was in flight: %v", err)
	}
	if stderr, state := c.end(t); state.ExitCode() != 0 {
		t.Errorf("%s\n%s", state, stderr)
	}
}

func TestTerminatedProcessExitsWith1AndOneLineAboutWhatWasNotWritten(t *testing.T) {
	a := startAPIServer(t)
	c := startChild(t, a, "--shutdown-grace-period=1s", "--logging-format=json")
	post(t, c.config)
	receive(t, "the write reaches the apiserver", a.creating)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	stderr, state := c.end(t)
	if state.ExitCode() != 1 {
		t.Errorf("%s\n%s", state, stderr)
	}
	logged := 0
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "1 occurrences of 1 series were not written") {
			logged++
			if !strings.HasPrefix(line, "{") {
				t.Errorf("not in the format of --logging-format: %s", line)
			}
		}
	}
	if logged != 1 {
		t.Errorf("logged %d times:\n%s", logged, stderr)
	}
}

func TestSecondSignalEndsTheProcessAtOnce(t *testing.T) {
	a := startAPIServer(t)
	c := startChild(t, a, "--shutdown-grace-period=10m")
	post(t, c.config)
	receive(t, "the write reaches the apiserver", a.creating)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.awaitLine(t, "Shutting down")
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	if stderr, state := c.end(t); state.ExitCode() != 1 || !strings.Contains(stderr, "second signal") {
		t.Errorf("%s\n%s", state, stderr)
	}
}
