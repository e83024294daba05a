package process

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell starts a script, and returns when it has written "ready".
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start("child", exec.Command("/bin/sh", "-c", "echo ready >&2; "+script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	await.Until(t, "the script", func() bool { return strings.HasPrefix(p.Log(9), "ready") })
	return p
}

const forever = "; while :; do sleep 0.05; done"

func TestStopReturnsHowTheProcessEnded(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		before func(*Process)
		want   []string // in the error; none for success
	}{
		"in order":  {`trap 'echo bye >&2; exit 0' TERM; echo trapped >&2` + forever, nil, nil},
		"exit code": {`trap 'exit 3' TERM; echo trapped >&2` + forever, nil, []string{"child failed (exit status 3)", "trapped"}},
		"by itself": {`echo why >&2; exit 3`, func(p *Process) { <-p.Done() }, []string{"ended by itself (exit status 3)", "why"}},
		"stopped": {`trap 'exit 0' TERM; echo trapped >&2` + forever, func(p *Process) {
			_ = p.Send(syscall.SIGSTOP)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, test.script)
			if test.before != nil {
				await.Until(t, "the trap", func() bool { return p.Ended() || strings.Contains(p.Log(9), "trapped") })
				test.before(p)
			} else {
				await.Until(t, "the trap", func() bool { return strings.Contains(p.Log(9), "trapped") })
			}
			err := p.Stop(t.Context())
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestStopKillsWhenItsContextEnds(t *testing.T) {
	p := shell(t, `trap '' TERM; echo trapped >&2`+forever)
	await.Until(t, "the trap", func() bool { return strings.Contains(p.Log(9), "trapped") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("got %v", err)
	}
	if code, err := p.Wait(t.Context()); code != -1 || err != nil {
		t.Errorf("it ended with %d (%v), want -1 of a signal", code, err)
	}
	if err := p.Send(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to a process that has ended: %v", err)
	}
}

func TestLogKeepsTheLastLines(t *testing.T) {
	var kept tail
	for range 3 * tailSize / 64 {
		_, _ = kept.Write([]byte(strings.Repeat("x", 63) + "\n"))
	}
	_, _ = kept.Write([]byte("one\ntwo\n"))
	if n := len(kept.String()); n < tailSize || n > 2*tailSize {
		t.Errorf("%d bytes are kept", n)
	}
	if got := LastLines(kept.String(), 2); got != "one\ntwo" {
		t.Errorf("the last two lines are %q", got)
	}
}
