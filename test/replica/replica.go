package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of a process.
type Options struct {
	// Kubeconfig leads to the apiserver.
	Kubeconfig string
	// Dir is where the log and the endpoint are written to: one that no other
	// process uses, and that exists until the process has ended.
	Dir string
	// Flags are added to those that a test always sets.
	Flags []string
}

// Replica is a process of eventd. Its methods may be called from several
// goroutines.
type Replica struct {
	command  *exec.Cmd
	log      string        // path
	exited   chan struct{} // closed when it has ended
	endpoint *rest.Config  // its address and CA
}

// Start starts a process and waits until it serves. Its end is the caller's.
func Start(ctx context.Context, o Options) (*Replica, error) {
	endpoint := filepath.Join(o.Dir, "endpoint.kubeconfig")
	_ = os.Remove(endpoint) // of a process that was killed
	r := &Replica{log: filepath.Join(o.Dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	r.command = exec.Command(binary, append([]string{
		"--kubeconfig=" + o.Kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0",
		"--endpoint-kubeconfig=" + endpoint, "--logging-format=json",
	}, o.Flags...)...)
	r.command.Stderr = log
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(r.exited)
		_ = r.command.Wait() // ProcessState says it
	}()
	if err := r.waitServing(ctx, endpoint); err != nil {
		r.Kill()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, r.Log(20))
	}
	return r, nil
}

// waitServing waits for the endpoint, which appears at once and whole.
func (r *Replica) waitServing(ctx context.Context, endpoint string) (err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = os.Stat(endpoint); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-r.exited:
			return fmt.Errorf("eventd ended with %d", r.ExitCode())
		case <-ctx.Done():
			return fmt.Errorf("eventd does not serve: %w", context.Cause(ctx))
		}
	}
	r.endpoint, err = clientcmd.BuildConfigFromFlags("", endpoint)
	return err
}

// Send sends a signal and returns.
func (r *Replica) Send(s os.Signal) error { return r.command.Process.Signal(s) }

// Signal sends a signal and waits for the end of the process.
func (r *Replica) Signal(ctx context.Context, s os.Signal) (exitCode int, err error) {
	if err := r.Send(s); err != nil {
		return 0, err
	}
	return r.Wait(ctx)
}

// Wait waits for the end of the process. The exit code is -1 if a signal ended it.
func (r *Replica) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-r.exited:
		return r.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("eventd has not ended: %w", context.Cause(ctx))
	}
}

// PID is that of the process.
func (r *Replica) PID() int { return r.command.Process.Pid }

// Exited is closed when the process has ended.
func (r *Replica) Exited() <-chan struct{} { return r.exited }

// ExitCode is that of a process that has ended.
func (r *Replica) ExitCode() int { return r.command.ProcessState.ExitCode() }

// Kill ends the process, if it has not ended yet, one that is stopped too, and
// waits for that.
func (r *Replica) Kill() {
	if err := r.Send(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err) // it is our own child
	}
	<-r.exited
}

// Config is a client of this process that has the credentials of another
// configuration: all that a client changes is the address.
func (r *Replica) Config(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = r.endpoint.Host
	config.CAData, config.CAFile = r.endpoint.CAData, r.endpoint.CAFile
	config.ServerName = r.endpoint.ServerName
	return config
}

// Log returns the last lines of its log.
func (r *Replica) Log(lines int) string {
	content, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
