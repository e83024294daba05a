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

func start(t *testing.T, log, script string) *Process {
	t.Helper()
	p, err := Start("child", log, exec.Command("/bin/sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestStopReturnsHowTheProcessEnded(t *testing.T) {
	const trapped = "; echo trapped >&2; while :; do sleep 0.05; done"
	none := func(*Process, context.CancelFunc) {}
	stop := func(p *Process, _ context.CancelFunc) { _ = p.Send(syscall.SIGSTOP) }
	timeout := func(_ *Process, cancel context.CancelFunc) { cancel() }
	for name, test := range map[string]struct {
		script string
		before func(*Process, context.CancelFunc)
		want   []string // in the error; none for success
		code   int
	}{
		"in order":             {`trap 'exit 0' TERM` + trapped, none, nil, 0},
		"in order, if stopped": {`trap 'exit 0' TERM` + trapped, stop, nil, 0},
		"with an exit code":    {`trap 'exit 3' TERM` + trapped, none, []string{"child failed (exit status 3)", "trapped"}, 3},
		"by itself":            {`echo why >&2; exit 3`, none, []string{"ended by itself (exit status 3)", "why"}, 3},
		"killed, not in time":  {`trap '' TERM` + trapped, timeout, []string{"still runs"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "", test.script)
			await.Until(t, "the trap", func() bool { return p.Ended() || strings.Contains(p.Log(9), "trapped") })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			test.before(p, cancel)
			err := p.Stop(ctx)
			if code, err := p.Wait(t.Context()); code != test.code || err != nil {
				t.Errorf("it ended with %d (%v), want %d", code, err, test.code)
			}
			if err := p.Send(syscall.SIGTERM); err != nil {
				t.Errorf("a signal to a process that has ended: %v", err)
			}
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
