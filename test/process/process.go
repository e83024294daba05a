// Package process runs the child processes of tests and tools. Whoever starts a
// Process ends it, with Stop or Kill; both are bounded, and both return after the
// process and the goroutine that waits for it have ended.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child process. Its methods may be called from several goroutines.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string // the file of stderr, or "" for tail
	tail tail
	done chan struct{}
	err  error // of the end; read after done
}

// shown is how many lines of its stderr an error of a process shows.
const shown = 40

// Start starts a command, which the caller has prepared, and which errors call by
// name. Its stderr goes to the file log, or if that is "" its end is kept in memory.
func Start(name, log string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	cmd.Stderr = &p.tail
	if log != "" {
		file, err := os.Create(log)
		if err != nil {
			return nil, err
		}
		defer file.Close() // the child has its own descriptor
		cmd.Stderr = file
	}
	// A grandchild that holds stderr open does not delay the end of the process.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Group makes a command run in a process group of its own. Ctrl-C at the terminal
// signals the group of this process only, which then ends its children in order.
func Group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Send sends a signal. A process that has ended is not an error.
func (p *Process) Send(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Wait waits for the end of the process and returns its exit code, -1 if a signal
// ended it.
func (p *Process) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, p.Failure("still runs: " + context.Cause(ctx).Error())
	}
}

// Stop ends the process with SIGTERM, and with SIGKILL when ctx ends. The process
// must not have ended before, and its exit code must be 0.
func (p *Process) Stop(ctx context.Context) error {
	if p.Ended() {
		return p.Failure("ended by itself")
	}
	if err := p.Send(syscall.SIGTERM); err != nil {
		return err
	}
	return p.End(ctx)
}

// End is Stop without SIGTERM: the caller has caused the end in another way.
func (p *Process) End(ctx context.Context) error {
	_ = p.Send(syscall.SIGCONT) // a stopped process does not handle other signals
	if _, err := p.Wait(ctx); err != nil {
		p.Kill()
		return err
	}
	if p.err != nil {
		return p.Failure("failed")
	}
	return nil
}

// Kill ends the process with SIGKILL, if it has not ended.
func (p *Process) Kill() {
	_ = p.Send(syscall.SIGKILL) // a child that runs can be killed
	<-p.done
}

// Failure is an error about the process, with the end of its stderr.
func (p *Process) Failure(what string) error {
	if p.Ended() && p.err != nil {
		what += " (" + p.err.Error() + ")"
	}
	return fmt.Errorf("%s %s; its stderr ends with:\n%s", p.name, what, p.Log(shown))
}

// Stderr is what the process has written there, or the end of it.
func (p *Process) Stderr() string {
	if p.log == "" {
		return p.tail.String()
	}
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// Log returns the last lines of stderr.
func (p *Process) Log(lines int) string {
	all := strings.Split(strings.TrimSpace(p.Stderr()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// tailSize holds a panic of a server with a few hundred goroutines.
const tailSize = 64 << 10

// tail keeps at least the last tailSize bytes that are written to it, and at most
// twice as many.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (w *tail) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, data...)
	if len(w.buf) > 2*tailSize {
		w.buf = append([]byte(nil), w.buf[len(w.buf)-tailSize:]...)
	}
	return len(data), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}
