package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is above every grace period of what is started here.
const stopTimeout = 45 * time.Second

// process is a child. It is in a process group of its own: a Ctrl-C at the
// terminal goes to the whole group of this process, and would end them all at
// once, in no order.
type process struct {
	name  string
	log   string // the file with its output
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it has ended
	err   error         // how it ended; to be read after done
	told  bool          // whether failure has said that it ended by itself
}

// start starts a program; its output goes to a file in dir, except for stdout
// if that is given. Its stdin is a pipe that closes with this process.
func start(dir, name string, stdout io.Writer, program string, args ...string) (*process, error) {
	p := &process{
		name: name,
		log:  filepath.Join(dir, name+".log"),
		cmd:  exec.Command(program, args...),
		done: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	// What it keeps in temporary files is to go with ours.
	p.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// stop ends the process with SIGTERM and waits for it, but not once hurry has
// ended. It is an error if the process ended badly, or by itself, unless that
// has been told already.
func (p *process) stop(hurry context.Context) error {
	if p.ended() {
		if p.told {
			return nil
		}
		return p.failure("ended by itself")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(hurry, stopTimeout, fmt.Errorf("still running %s after SIGTERM", stopTimeout))
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s was killed: %w", p.name, context.Cause(ctx))
	}
	_ = p.stdin.Close()
	if p.err != nil {
		return p.failure("ended badly")
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure is an error that says what, and shows the end of the log.
func (p *process) failure(what string) error {
	p.told = true
	if p.ended() && p.err != nil {
		what += " (" + p.err.Error() + ")"
	}
	return fmt.Errorf("%s %s; its log ends with:\n%s", p.name, what, p.lastLines(20))
}

func (p *process) lastLines(n int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// firstLine sends the first line that is written to it, and drops the rest.
type firstLine struct {
	line chan string // with room for one
	buf  bytes.Buffer
	sent bool
}

func newFirstLine() *firstLine { return &firstLine{line: make(chan string, 1)} }

func (w *firstLine) Write(data []byte) (int, error) {
	if !w.sent {
		w.buf.Write(data)
		if line, _, complete := strings.Cut(w.buf.String(), "\n"); complete {
			w.line <- line
			w.sent = true
		}
	}
	return len(data), nil
}
