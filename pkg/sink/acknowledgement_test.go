package sink

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// The apiserver answers after a second.
func TestCallerIsAnsweredWhenAFollowerHoldsItsOccurrence(t *testing.T) {
	type test struct {
		how      Acknowledgement
		follower bool
		delay    time.Duration
		at       time.Duration // of the look
		want     calls
	}
	for name, test := range map[string]test{
		"a follower holds it":               {AcknowledgeReplicated, true, 0, 0, calls{accepted: 1}},
		"a follower holds a deferred write": {AcknowledgeReplicated, true, time.Minute, 0, calls{accepted: 1}},
		"once only":                         {AcknowledgeReplicated, true, time.Minute, time.Hour, calls{accepted: 1}},
		"there is no follower":              {AcknowledgeReplicated, false, 0, time.Second / 2, calls{}},
		"no follower, written":              {AcknowledgeReplicated, false, 0, time.Hour, calls{settled: 1}},
		"no follower, a deferred write":     {AcknowledgeReplicated, false, time.Minute, 0, calls{accepted: 1}},
		"committed":                         {AcknowledgeCommitted, true, 0, time.Second / 2, calls{}},
		"received":                          {AcknowledgeReceived, false, 0, 0, calls{accepted: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{takes: time.Second}
			replicas(t, 2, f, func(o *Options) { o.Acknowledge = test.how }, func(t *testing.T, all []*replica) {
				if test.follower {
					defer all[1].follow(all[0]).end()
				}
				var got answers
				all[0].recordLater(0, test.delay, got.wait)
				pass(test.at)
				if got := got.calls(); got != test.want {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
			})
		})
	}
}

// slow is an end of a session whose reads take a while.
type slow struct {
	net.Conn
	takes atomic.Int64
}

func (s *slow) Read(p []byte) (int, error) {
	defer func() { time.Sleep(time.Duration(s.takes.Load())) }()
	return s.Conn.Read(p)
}

// One that reads slowly is late. What was to wait for it is accepted if its write is deferred, and
// nothing more waits for it until it has caught up.
func TestNobodyWaitsForALateFollower(t *testing.T) {
	replicas(t, 2, &fake{answer: hang}, nil, func(t *testing.T, all []*replica) {
		here, there := net.Pipe()
		follower := &slow{Conn: here}
		s := all[1].followOver(all[0], follower, there)
		var prompt, due, deferred, next, last, gone answers
		all[0].record(0, prompt.wait)
		pass(0)
		follower.takes.Store(int64(3 * time.Second))
		all[0].record(1, due.wait)
		all[0].recordLater(2, time.Hour, deferred.wait)
		pass(time.Millisecond)
		want := func(when string, a *answers, accepted int32) {
			t.Helper()
			if got := a.calls(); got != (calls{accepted: accepted}) {
				t.Errorf("%s: %+v, want %d accepted", when, got, accepted)
			}
		}
		want("in time", &prompt, 1)
		want("not held yet", &due, 0)
		want("not held yet, deferred", &deferred, 0)
		pass(time.Second)
		all[0].recordLater(3, time.Hour, next.wait)
		want("the follower is late", &due, 0)
		want("the follower is late, deferred", &deferred, 1)
		want("after that, deferred", &next, 1)
		pass(time.Minute)
		want("held in the end", &due, 1)
		follower.takes.Store(int64(time.Millisecond))
		all[0].record(4, prompt.wait)
		pass(time.Minute)
		all[0].recordLater(5, time.Hour, last.wait)
		want("the follower has caught up", &last, 0)
		pass(time.Second)
		want("held", &last, 1)
		follower.takes.Store(int64(time.Second / 2))
		all[0].record(6)
		pass(0)
		all[0].recordLater(7, time.Hour, gone.wait)
		want("the follower is in time", &gone, 0)
		s.end()
		want("it is gone", &gone, 1)
	})
}

// A namespace that refuses Events refuses those of callers that would be answered before. The first
// one is answered before, and the log has its refusal.
func TestCallerWaitsForAKnownRefusal(t *testing.T) {
	for name, how := range map[string]Acknowledgement{"replicated": AcknowledgeReplicated, "received": AcknowledgeReceived} {
		t.Run(name, func(t *testing.T) {
			l := &logged{}
			f := &fake{answer: fail(missing("ns")), log: l.add}
			replicas(t, 2, f, func(o *Options) { o.Acknowledge = how }, func(t *testing.T, all []*replica) {
				defer all[1].follow(all[0]).end()
				var first, now, later answers
				all[0].recordLater(0, time.Second, first.wait)
				pass(time.Second)
				if want := (calls{accepted: 1}); first.calls() != want {
					t.Errorf("the first one got %+v, want %+v", first.calls(), want)
				}
				l.wantLines(t, []string{`"reason"="namespace_not_found" "soFar"=1`, `"name"="pod-0"`})
				all[0].record(1, now.wait)
				all[0].recordLater(2, time.Hour, later.wait)
				pass(time.Minute)
				if want := (calls{settled: 1}); now.calls() != want || later.calls() != want {
					t.Errorf("got %+v and %+v, want %+v", now.calls(), later.calls(), want)
				}
				all[0].wantEnds(ends{occurrence.NamespaceNotFound: 3})
				pass(time.Hour) // it is no longer known
				var again answers
				all[0].recordLater(3, time.Hour, again.wait)
				pass(0)
				if got := again.calls(); got != (calls{accepted: 1}) {
					t.Errorf("later, got %+v", got)
				}
			})
		})
	}
}

// What followers hold is evicted last, though it is newer.
func TestWhatAFollowerHoldsIsEvictedLast(t *testing.T) {
	few := func(o *Options) { o.MaxPendingSeries = 2 }
	replicas(t, 2, &fake{answer: hang}, few, func(t *testing.T, all []*replica) {
		defer all[1].follow(all[0]).end()
		var held answers
		all[0].recordLater(0, time.Hour)
		all[0].recordLater(1, time.Hour, held.wait)
		pass(0)
		all[0].record(2, warning)
		all[0].wantEnds(ends{occurrence.PendingFull: 1})
		if got := held.calls(); got != (calls{accepted: 1}) {
			t.Errorf("%+v", got)
		}
	})
}
