package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// Each kind of fault, as seen from both sides, in both protocols.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		fault     Fault
		code      int  // that the client gets, 0 for none
		forwarded bool // the backend gets the write
	}{
		"no fault":             {Fault{}, 201, true},
		"slow":                 {Slow(Fixed(time.Millisecond), Fixed(time.Millisecond)), 201, true},
		"500 before the write": {BeforeWrite(Status(500)), 500, false},
		"429 before the write": {BeforeWrite(Status(429)), 429, false},
		"503 with Retry-After 2 before the write": {BeforeWrite(Status(503).RetryAfter(2)), 503, false},
		"stream reset before the write":           {BeforeWrite(ResetStream), 0, false},
		"connection reset before the write":       {BeforeWrite(ResetConnection), 0, false},
		"500 after the write":                     {AfterWrite(Status(500)), 500, true},
		"503 with Retry-After 1 after the write":  {AfterWrite(Status(503).RetryAfter(1)), 503, true},
		"504 after the write":                     {AfterWrite(Status(504)), 504, true},
		"stream reset after the write":            {AfterWrite(ResetStream), 0, true},
		"connection reset after the write":        {AfterWrite(ResetConnection), 0, true},
		"504, and the write late":                 {LateWrite(nil, Status(504)), 504, true},
		"stream reset, and the write late":        {LateWrite(Fixed(time.Millisecond), ResetStream), 0, true},
	} {
		for proto, next := range protocols {
			t.Run(name+", "+proto, func(t *testing.T) {
				backend := newFake(t)
				p := New(t, backend.config, 1)
				p.SetRules(always(test.fault))
				g := clientOf(t, p, next...).create(t.Context(), "ns", "a")
				if g.code != test.code || (g.err != nil) != (test.code == 0) {
					t.Errorf("the client got %d, %v; want %d", g.code, g.err, test.code)
				}
				if g.err == nil && g.proto != proto {
					t.Errorf("the client spoke %s", g.proto)
				}
				want := Entry{
					Request:   Request{Verb: Create, API: CoreV1, Namespace: "ns", Name: "a", Number: 1},
					Fault:     test.fault.String(),
					Forwarded: test.forwarded, Answer: test.code, Ended: true,
				}
				if name != "no fault" && want.Fault != name {
					t.Errorf("the fault is called %q", want.Fault)
				}
				if test.forwarded {
					want.Status = http.StatusCreated
				}
				if e := onlyEntry(t, p); e != want {
					t.Errorf("recorded is %+v, want %+v", e, want)
				}
				backend.wantWrites(t, one(test.forwarded))
			})
		}
	}
}

func TestHangLastsUntilTheClientGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		fault  Fault
		hangs  func(Entry) bool
		writes int
	}{
		"before the write": {BeforeWrite(Hang), func(e Entry) bool { return e.Fault == "hang before the write" }, 0},
		"after the write":  {AfterWrite(Hang), func(e Entry) bool { return e.Status == http.StatusCreated }, 1},
	} {
		for proto, next := range protocols {
			t.Run(name+", "+proto, func(t *testing.T) {
				backend, p, _ := setUp(t, always(test.fault))
				ctx, giveUp := context.WithCancel(t.Context())
				answer := clientOf(t, p, next...).start(ctx, "ns", "a")
				await.Until(t, "the request hangs", func() bool { r := p.Record(); return len(r) == 1 && test.hangs(r[0]) })
				if p.Record()[0].Ended {
					t.Error("the request has ended though its client waits")
				}
				giveUp()
				if g := receive(t, answer); !errors.Is(g.err, context.Canceled) {
					t.Errorf("the client got %+v", g)
				}
				if e := onlyEntry(t, p); e.Succeeded() != (test.writes > 0) || e.Forwarded != (test.writes > 0) || e.Answer != 0 {
					t.Errorf("recorded is %+v", e)
				}
				backend.wantWrites(t, test.writes)
			})
		}
	}
}

// A write whose answer is to be lost cannot be taken back by giving up early.
func TestStruckWriteTakesEffectThoughItsClientGivesUp(t *testing.T) {
	backend, p, c := setUp(t, always(AfterWrite(ResetStream)))
	release := backend.holdWrites(t)
	ctx, giveUp := context.WithCancel(t.Context())
	answer := c.start(ctx, "ns", "a")
	backend.waitArrived(t, 1)
	giveUp()
	receive(t, answer)
	release()
	if e := onlyEntry(t, p); !e.Succeeded() {
		t.Errorf("recorded is %+v", e)
	}
}

func TestPassingWriteIsTakenBackWhenItsClientGivesUp(t *testing.T) {
	backend := newFake(t)
	p := New(t, backend.config, 1)
	backend.holdWrites(t) // until the client is gone
	ctx, giveUp := context.WithCancel(t.Context())
	answer := clientOf(t, p).start(ctx, "ns", "a")
	backend.waitArrived(t, 1)
	giveUp()
	receive(t, answer)
	if e := onlyEntry(t, p); !e.Forwarded || e.Status != 0 || !errors.Is(e.Err, context.Canceled) {
		t.Errorf("recorded is %+v", e)
	}
}

func TestLateWriteComesAfterItsAnswer(t *testing.T) {
	const by = 100 * time.Millisecond
	backend, p, c := setUp(t, always(LateWrite(Fixed(by), Status(504))))
	start := time.Now()
	if g := c.create(t.Context(), "ns", "a"); g.code != 504 {
		t.Fatalf("the client got %+v", g)
	}
	waitQuiet(t, p)
	backend.wantWrites(t, 1)
	if took := backend.seen()[0].at.Sub(start); took < by {
		t.Errorf("the write came after %v, want %v at the least", took, by)
	}
}

// The answer does not wait for the write: here the backend never gives any.
func TestLateWriteKeepsNobodyWaiting(t *testing.T) {
	backend, p, c := setUp(t, always(LateWrite(nil, Status(504))))
	release := backend.holdWrites(t)
	if g := c.create(t.Context(), "ns", "a"); g.code != 504 {
		t.Fatalf("the client got %+v", g)
	}
	backend.waitArrived(t, 1)
	if p.Record()[0].Ended {
		t.Error("the entry has ended before its late write")
	}
	release()
	if e := onlyEntry(t, p); !e.Succeeded() || e.Answer != 504 {
		t.Errorf("recorded is %+v", e)
	}
}

func TestDelaysBeforeAndAfterTheWrite(t *testing.T) {
	const before, after = 30 * time.Millisecond, 50 * time.Millisecond
	backend, _, c := setUp(t, always(Slow(Fixed(before), Fixed(after))))
	start := time.Now()
	if g := c.create(t.Context(), "ns", "a"); g.err != nil {
		t.Fatal(g.err)
	}
	end := time.Now()
	at := backend.seen()[0].at
	if at.Sub(start) < before || end.Sub(at) < after {
		t.Errorf("%v before and %v after, want at least %v and %v", at.Sub(start), end.Sub(at), before, after)
	}
}

func TestGivingUpDuringADelayKeepsTheWriteFromTheBackend(t *testing.T) {
	backend, p, c := setUp(t, always(Slow(Fixed(time.Hour), nil)))
	ctx, giveUp := context.WithCancel(t.Context())
	answer := c.start(ctx, "ns", "a")
	await.Until(t, "the write is delayed", func() bool { r := p.Record(); return len(r) == 1 && r[0].Fault == "slow" })
	giveUp()
	receive(t, answer)
	if e := onlyEntry(t, p); e.Forwarded {
		t.Errorf("recorded is %+v", e)
	}
	backend.wantWrites(t, 0)
}

// Two requests share a connection; one of them is struck while the other is with
// the backend.
func TestResetInHTTP2HurtsItsStreamOrTheWholeConnection(t *testing.T) {
	for _, test := range []struct {
		ending        Ending
		otherSurvives bool
	}{{ResetStream, true}, {ResetConnection, false}} {
		t.Run(test.ending.String(), func(t *testing.T) {
			backend, _, c := setUp(t, Rule{Match: Match{NamePrefix: "struck"}, Probability: 1, Fault: BeforeWrite(test.ending)})
			var used []string // near ends of the connections
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(i httptrace.GotConnInfo) { used = append(used, i.Conn.LocalAddr().String()) },
			})
			wantCreated(t, c.create(ctx, "ns", "first")) // makes the connection
			backend.waitArrived(t, 1)
			release := backend.holdWrites(t)
			other := c.start(ctx, "ns", "other")
			backend.waitArrived(t, 1)
			if g := c.create(ctx, "ns", "struck"); g.err == nil {
				t.Errorf("the struck one got %d", g.code)
			}
			if len(used) != 3 || used[0] != used[1] || used[1] != used[2] {
				t.Fatalf("not on one connection: %v", used)
			}
			if test.otherSurvives {
				release()
				wantCreated(t, receive(t, other))
			} else if g := receive(t, other); g.err == nil {
				t.Errorf("the other one got %d, though its connection was reset", g.code)
			}
		})
	}
}

// Written by hand, because net/http's clients read and write at once, and the
// kernel reports a reset to only one of the two.
func TestResetIsATCPReset(t *testing.T) {
	for _, ending := range []Ending{ResetConnection, ResetStream} {
		t.Run(ending.String(), func(t *testing.T) {
			p := New(t, newFake(t).config, 1)
			p.SetRules(always(AfterWrite(ending)))
			c := dial(t, p)
			body := eventNamed("a")
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: proxy\r\nContent-Length: %d\r\n\r\n%s", core, len(body), body)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client got %v", err)
			}
		})
	}
}
