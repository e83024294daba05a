package sink

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

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

// told is what the caller of an occurrence is told, and when.
type told struct {
	mu   sync.Mutex
	what string
}

func (a *told) wait(o *occurrence.Occurrence) {
	began := time.Now()
	tell := func(what string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.what += fmt.Sprintf("%s after %v", what, time.Since(began).Round(time.Millisecond))
	}
	o.Deferred = func() { tell("accepted") }
	o.Settled = func(end occurrence.Settlement) {
		tell(strings.TrimSpace(fmt.Sprint(end.Outcome, " ", end.Reason)))
	}
}

func (a *told) want(t *testing.T, when, want string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.what != want {
		t.Errorf("%s: told %q, want %q", when, a.what, want)
	}
}

// A deferred occurrence waits for a follower for a second while another replica is known. Then it is
// written, once within 10 s for each series, or refused without a trace.
func TestDeferredOccurrenceIsWrittenOrRefusedIfNoFollowerHoldsIt(t *testing.T) {
	var unknown atomic.Bool
	f := &fake{}
	replicas(t, 2, f, func(o *Options) { o.OtherReplica = func() bool { return !unknown.Load() } }, func(t *testing.T, all []*replica) {
		s := all[0]
		record := func(series int) *told {
			var a told
			s.recordLater(series, time.Hour, a.wait)
			return &a
		}
		first, twin := record(0), record(0)
		pass(time.Second / 2)
		with := record(0)
		pass(time.Second / 2)
		first.want(t, "no follower", "created after 1s")
		twin.want(t, "at the same time", "merged after 1s")
		with.want(t, "with it", "merged after 500ms")
		refused, other := record(0), record(1)
		pass(time.Second)
		refused.want(t, "the series was written early", "dropped not_replicated after 1s")
		other.want(t, "another series", "created after 1s")
		pass(9 * time.Second)
		later := record(0)
		pass(time.Second)
		later.want(t, "10 s later", "merged after 1s")
		s.wantEnds(ends{written: 5, occurrence.NotReplicated: 1})
		if n := testutil.ToFloat64(s.metrics.early); n != 3 {
			t.Errorf("%v early writes are counted, want 3", n)
		}
		if p := s.Pending(); p != (Pending{}) {
			t.Errorf("%+v is pending", p)
		}

		pass(10 * time.Second)
		s.line.down.Store(true)
		away := record(0)
		pass(2 * time.Second)
		away.want(t, "the apiserver is away too", "dropped not_replicated after 1.5s")
		s.line.down.Store(false)
		s.line.mute.Store(true)
		doubt := record(2)
		pass(2 * time.Second)
		doubt.want(t, "the answer to its write was lost", "uncertain after 1.5s")
		s.line.mute.Store(false)
		pass(time.Minute)
		gone := record(3)
		pass(time.Second / 2)
		unknown.Store(true)
		pass(time.Second / 2)
		gone.want(t, "no replica is known any more", "accepted after 1s")
		alone := record(4)
		alone.want(t, "none was known", "accepted after 0s")
		pass(2 * time.Hour)
		s.wantEnds(ends{written: 8, occurrence.NotReplicated: 2})
		if n := f.server.Counted(); n != 8 {
			t.Errorf("%d are counted, want 8: what was refused is not", n)
		}
	})
}

// As many early writes are under way as can be in time. Others are refused at once, and cost no write.
func TestFewEarlyWritesAreUnderWay(t *testing.T) {
	few := func(o *Options) {
		o.OtherReplica = func() bool { return true }
		o.Concurrency, o.MinConcurrency = 4, 4
	}
	f := &fake{takes: 300 * time.Millisecond}
	replicas(t, 1, f, few, func(t *testing.T, all []*replica) {
		got := make([]told, 100)
		for i := range got {
			all[0].recordLater(i, time.Hour, got[i].wait)
		}
		pass(time.Second)
		for i := range 8 {
			got[i].want(t, "to be written", "")
		}
		for i := range 92 {
			got[8+i].want(t, "too many", "dropped not_replicated after 1s")
		}
		pass(time.Minute)
		if n := f.server.Counted(); n > 8 {
			t.Errorf("%d writes were made, want at most 8", n)
		}
	})
}

// The apiserver does not answer: what a request in flight may have written is not withdrawn, and nobody
// waits for that request.
func TestCallerDoesNotWaitForAnEarlyWriteThatHangs(t *testing.T) {
	replicas(t, 1, &fake{answer: hang}, func(o *Options) { o.OtherReplica = func() bool { return true } }, func(t *testing.T, all []*replica) {
		var hanging, next told
		all[0].recordLater(0, time.Hour, hanging.wait)
		pass(time.Second)
		all[0].recordLater(0, time.Hour, next.wait)
		pass(2 * time.Second)
		hanging.want(t, "in flight", "uncertain after 1.5s")
		next.want(t, "behind it", "uncertain after 1.5s") // it may be part of a plan
		if p := all[0].Pending(); p.Occurrences != 2 {
			t.Errorf("%+v is pending, want 2", p)
		}
	})
}

// A write that is not deferred has all its time, though nobody holds what is to be written.
func TestCallerWaitsForAWriteThatIsSlow(t *testing.T) {
	replicas(t, 1, &fake{takes: 3 * time.Second}, func(o *Options) { o.OtherReplica = func() bool { return true } }, func(t *testing.T, all []*replica) {
		var slow told
		all[0].recordLater(0, 0, slow.wait)
		pass(4 * time.Second)
		slow.want(t, "slow", "created after 3s")
	})
}

// One that reads slowly is late: it holds nothing in time until it has caught up. What it may have was
// not withdrawn.
func TestLateFollowerDelaysNobodyByMoreThanASecond(t *testing.T) {
	replicas(t, 2, &fake{takes: time.Millisecond}, nil, func(t *testing.T, all []*replica) {
		here, there := net.Pipe()
		follower := &slow{Conn: here}
		all[1].followOver(all[0], follower, there)
		var prompt, sent, unsent, unsentToo, doubt, last told
		all[0].recordLater(0, time.Hour, prompt.wait)
		pass(0)
		prompt.want(t, "in time", "accepted after 0s")
		follower.takes.Store(int64(10 * time.Second))
		all[0].recordLater(0, time.Hour, sent.wait)
		pass(time.Second / 2)
		all[0].recordLater(0, time.Hour, unsent.wait)
		pass(time.Second)
		sent.want(t, "sent to it", "merged after 1.001s")
		unsent.want(t, "not sent to it", "merged after 501ms")
		all[0].recordLater(0, time.Hour, unsentToo.wait)
		pass(time.Second)
		unsentToo.want(t, "after the early write", "dropped not_replicated after 1s")
		pass(7 * time.Second)
		all[0].recordLater(0, time.Hour, doubt.wait)
		pass(time.Second)
		doubt.want(t, "sent to it meanwhile", "uncertain after 1s")
		if p := all[0].Pending(); p.Occurrences != 1 {
			t.Errorf("%+v is pending, want 1", p)
		}
		follower.takes.Store(0)
		pass(time.Minute)
		all[0].recordLater(5, time.Hour, last.wait)
		pass(time.Second / 10)
		last.want(t, "the follower has caught up", "accepted after 0s")
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
