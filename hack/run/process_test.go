package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := start(t.TempDir(), "child", nil, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func TestStopEndsAProcessInItsOwnWay(t *testing.T) {
	ready := newFirstLine()
	p, err := start(t.TempDir(), "child", ready, "/bin/sh", "-c", `trap 'echo bye >&2; exit 0' TERM; echo ready; while :; do sleep 0.1; done`)
	if err != nil {
		t.Fatal(err)
	}
	<-ready.line
	if err := p.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if said := p.lastLines(1); said != "bye" {
		t.Errorf("its log ends with %q", said)
	}
}

func TestStopTellsOfAProcessThatEndedByItself(t *testing.T) {
	p := shell(t, "echo why >&2; exit 3")
	<-p.done
	if err := p.stop(t.Context()); err == nil || !strings.Contains(err.Error(), "why") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}

func TestHurryKills(t *testing.T) {
	p := shell(t, `trap '' TERM; while :; do sleep 0.1; done`)
	hurry, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := p.stop(hurry); err == nil {
		t.Error("no error although the process was killed")
	}
	if !p.ended() {
		t.Error("still running")
	}
}

func TestChildrenAreInAGroupOfTheirOwn(t *testing.T) {
	p := shell(t, "read line")
	group, err := syscall.Getpgid(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if own, _ := syscall.Getpgid(os.Getpid()); group == own {
		t.Error("Ctrl-C at the terminal would end the child at once")
	}
}

func TestFirstLineDropsTheRest(t *testing.T) {
	line := newFirstLine()
	for _, part := range []string{"ready ", "https://x\nmore\n", "and more\n"} {
		if n, err := line.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatal(n, err)
		}
	}
	if got := <-line.line; got != "ready https://x" {
		t.Errorf("got %q", got)
	}
	if bytes.Contains(line.buf.Bytes(), []byte("and more")) {
		t.Error("keeps what nobody reads")
	}
}
