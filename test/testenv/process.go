package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout is above the control plane's own limit, so that its account
	// of what went wrong is what is reported.
	startTimeout = 4 * time.Minute
	// stopTimeout is above the control plane's own limit of twice 5 seconds.
	stopTimeout = 20 * time.Second
	// tailSize is what is kept of a process's stderr: enough for a panic of a
	// server with a few hundred goroutines to show its first ones.
	tailSize = 64 << 10
	// tailShown is what of it goes into an error.
	tailShown = 4 << 10
)

// process is one run of the control plane's binary. Its goroutines end with it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	ready  chan string // the first line of stdout
	stderr *tail
	done   chan struct{} // closed when the process has ended
	err    error         // how it ended; to be read after done
}

// startProcess starts binary with a pipe as stdin, which is closed when this
// process ends in whatever way.
func startProcess(binary string, args []string, stderr io.Writer) (*process, error) {
	p := &process{
		cmd:    exec.Command(binary, args...),
		ready:  make(chan string, 1),
		stderr: &tail{},
		done:   make(chan struct{}),
	}
	p.cmd.Stdout = &firstLine{to: p.ready}
	p.cmd.Stderr = p.stderr
	if stderr != nil {
		p.cmd.Stderr = io.MultiWriter(p.stderr, stderr)
	}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// waitReady returns the server's URL and the path of its kubeconfig.
func (p *process) waitReady(ctx context.Context) (url, kubeconfig string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	select {
	case line := <-p.ready:
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 || fields[0] != "ready" {
			return "", "", fmt.Errorf("not a ready line: %q", line)
		}
		return fields[1], fields[2], nil
	case <-p.done:
		return "", "", p.failure("ended before it was ready")
	case <-ctx.Done():
		return "", "", p.failure(context.Cause(ctx).Error())
	}
}

// failure is an error that says what and shows the end of stderr.
func (p *process) failure(what string) error {
	if p.ended() && p.err != nil {
		what += " (" + p.err.Error() + ")"
	}
	return fmt.Errorf("control plane: %s; its stderr ends with:\n%s", what, p.stderr.last(tailShown))
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// terminate ends the process and leaves its data directory.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.waitEnd()
}

// abandon ends the process in the way in which the end of this one would: it
// removes a data directory that belongs to us.
func (p *process) abandon() error {
	return errors.Join(p.stdin.Close(), p.waitEnd())
}

// discard ends a process that did not become ready, and forgets how it ended:
// the reason has been reported.
func (p *process) discard() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}

// waitEnd waits for the end that has been asked for, and enforces it.
func (p *process) waitEnd() error {
	// A process that a test has stopped would not see what it was asked.
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		err := p.failure(fmt.Sprintf("has not ended within %s", stopTimeout))
		_ = p.cmd.Process.Kill()
		<-p.done
		return err
	}
	_ = p.stdin.Close() // of no more use; closed already if abandoned
	if p.err != nil {
		return p.failure("ended badly")
	}
	return nil
}

// firstLine sends the first line that is written to it, and drops the rest.
type firstLine struct {
	to   chan<- string
	buf  bytes.Buffer
	sent bool
}

func (w *firstLine) Write(data []byte) (int, error) {
	if !w.sent {
		w.buf.Write(data)
		if line, _, complete := strings.Cut(w.buf.String(), "\n"); complete {
			w.to <- line
			w.sent = true
		}
	}
	return len(data), nil
}

// tail keeps the last tailSize bytes, or up to twice that, of what is written
// to it.
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

// last returns at most n of the last bytes, in whole lines where there are any.
func (w *tail) last(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.buf) <= n {
		return string(w.buf)
	}
	cut := string(w.buf[len(w.buf)-n:])
	if _, rest, found := strings.Cut(cut, "\n"); found {
		return rest
	}
	return cut
}
