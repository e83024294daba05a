package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/eventd/eventd/test/process"
)

const (
	// startTimeout is above the control plane's own limit, so that its own error is
	// the one that is reported.
	startTimeout = 4 * time.Minute
	// stopTimeout is above the control plane's own limit of twice 5 seconds.
	stopTimeout = 20 * time.Second
)

// run is one process of the control plane's binary.
type run struct {
	*process.Process
	stdin io.Closer
	ready chan string // the first line of stdout
}

// startRun starts binary with a pipe as stdin, which closes when this process ends
// in whatever way.
func startRun(binary string, args []string) (*run, error) {
	cmd := exec.Command(binary, args...)
	r := &run{ready: make(chan string, 1)}
	process.Group(cmd) // it ends with its stdin
	var err error
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.Process, err = process.Start("control plane", "", cmd); err != nil {
		return nil, err
	}
	go func() { // until the line is there, or the process has ended
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err == nil {
			r.ready <- strings.TrimSuffix(line, "\n")
		}
	}()
	return r, nil
}

// waitReady returns the server's URL and the path of its kubeconfig.
func (r *run) waitReady(ctx context.Context) (url, kubeconfig string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case line := <-r.ready:
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 || fields[0] != "ready" {
			return "", "", fmt.Errorf("not a ready line: %q", line)
		}
		return fields[1], fields[2], nil
	case <-r.Done():
		return "", "", r.Failure("ended before it was ready")
	case <-ctx.Done():
		return "", "", r.Failure("is not ready: " + context.Cause(ctx).Error())
	}
}

// terminate ends the process and leaves its data directory.
func (r *run) terminate() error { return r.end(r.Stop) }

// abandon ends the process in the way in which the end of this one would: it
// removes its data directory.
func (r *run) abandon() error { return errors.Join(r.stdin.Close(), r.end(r.End)) }

func (r *run) end(how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	defer r.stdin.Close()
	return how(ctx)
}

// discard ends a process that did not become ready, for a reason that has been
// reported.
func (r *run) discard() {
	r.Kill()
	_ = r.stdin.Close()
}
