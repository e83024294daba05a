package process

import (
	"context"
	"os/exec"
	"path/filepath"
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

func TestLogHasTheLastLinesOfStderr(t *testing.T) {
	for _, log := range []string{"", filepath.Join(t.TempDir(), "log")} {
		p := start(t, log, "echo one >&2; echo two >&2")
		if code, err := p.Wait(t.Context()); code != 0 || err != nil {
			t.Fatalf("it ended with %d (%v)", code, err)
		}
		if got := p.Log(2); got != "one\ntwo" {
			t.Errorf("log %q: the last two lines are %q", log, got)
		}
	}
}

func TestGroupIsNotTheOneOfThisProcess(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "while :; do sleep 0.05; done")
	Group(cmd)
	p, err := Start("child", "", cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if group, err := syscall.Getpgid(p.PID()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("it is in group %d (%v): Ctrl-C at the terminal would end it at once", group, err)
	}
}

func TestTailIsBounded(t *testing.T) {
	var kept tail
	for range 3 * tailSize / 64 {
		_, _ = kept.Write([]byte(strings.Repeat("x", 63) + "\n"))
	}
	_, _ = kept.Write([]byte("end"))
	if got := kept.String(); len(got) < tailSize || len(got) > 2*tailSize || !strings.HasSuffix(got, "\nend") {
		t.Errorf("%d bytes are kept, which end with %q", len(got), got[len(got)-9:])
	}
}
