package ha

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

var (
	handoverFigures = figures.NewTable("A leader that ends in order under load; times are p50 / p99 / max in ms",
		"what", "times", "series deferred", "signal to new leader's first write", "write gap", "write gap without",
		"occurrences", "lost", "counted twice", "duplicate Events")
	handoverAnswers = figures.NewTable("What the clients met meanwhile",
		"what", "requests", "without an answer", "503 or 429 with Retry-After", "final errors", "replayed",
		"classic recorder: recorded -lost +twice", "new-style recorder")
)

// handovers are repeated.
type handovers struct {
	// first is from the signal to the new leader's first write of an occurrence that
	// was posted after the signal.
	first durations
	// gap is the longest time without a write of an occurrence that is written at once,
	// from the signal until the load is steady again; steady is the same before.
	gap, steady durations
	deferred    []float64
}

// add measures a handover, once the load is steady again.
func (h *handovers) add(l *load, b before, signalled time.Time) {
	l.t.Helper()
	taken := l.waitTaken(b, signalled)
	resumed := l.waitPosted(taken.at.Add(500 * time.Millisecond))
	h.first = append(h.first, taken.at.Sub(signalled))
	h.gap = append(h.gap, longestGap(l.journal.since(signalled), signalled, resumed.at))
	h.steady = append(h.steady, b.steady)
}

// finish ends the load, checks what holds for planned handovers, and adds the rows.
func (h *handovers) finish(t *testing.T, what string, times progress, l *load, also ...*deferred) {
	t.Helper()
	o, d := l.finish(t, false, also...)
	handoverFigures.Add(what, times, figures.Spread(h.deferred...), milliseconds(h.first), milliseconds(h.gap), milliseconds(h.steady),
		l.accounts["recorded"], d.Lost, d.Twice, d.Duplicates)
	all := o.seen.sum(func(answer) bool { return true })
	handoverAnswers.Add(what, all, o.seen.unanswered(), o.seen.repeated(), o.seen.final(), l.accounts["replayed"], o.classic, o.newStyle)
	for source, r := range map[string]recorded{"classic": o.classic, "new-style": o.newStyle} {
		if r.Difference != (stored.Difference{}) {
			t.Errorf("the Events of the %s recorder do not count what it has recorded: %s", source, r)
		}
	}
	if n := o.seen.unanswered(); n > 0 {
		t.Errorf("%d requests were not answered", n)
	}
	if len(o.outside) > 0 || o.retried > 0 { // by more than client-go's rest client
		t.Errorf("in planned handovers: %s", o.fate)
	}
}

// The leader is terminated again and again with thousands of deferred series: the next
// one continues at once, and nothing is lost or counted twice.
func TestLeaderHandsOver(t *testing.T) {
	least := longrun.Either(5000, 500)
	// A budget of one write per object, for as long as the test takes.
	l := startLoad(t, testenv.Shared(t), "--budget-burst=1", "--budget-qps=0.00001")
	o := l.newDeferred(least)
	h := &handovers{}
	times := repeat(t, repetitions(50, 3), func(int) {
		o.postAll(o.all)
		b := l.observe()
		n := b.leader.read("eventd_sink_deferred_series")
		if n < float64(least) {
			t.Errorf("%v series are deferred, want %d", n, least)
		}
		h.deferred = append(h.deferred, n)
		signalled := time.Now()
		b.leader.signal(syscall.SIGTERM)
		h.add(l, b, signalled)
		b.leader.waitEnd()
		if next, _ := l.leader(); next == b.leader {
			t.Errorf("%s leads, and has ended", next.name)
		}
		b.leader.start()
	})
	h.finish(t, "SIGTERM of the leader", times, l, o)
	if p99 := h.first.percentile(99); *longrun.Full && p99 > 300*time.Millisecond {
		t.Errorf("the first write of the new leader is committed after %s (p99)", p99)
	}
}

// All replicas are restarted, one after the other, as a rollout does.
func TestRollingRestartLosesNothing(t *testing.T) {
	l := startLoad(t, testenv.Shared(t))
	h := &handovers{}
	gaps := map[bool]durations{} // by whether it was the leader
	times := repeat(t, repetitions(5, 2), func(int) {
		for _, m := range l.members {
			b := l.observe()
			signalled := time.Now()
			m.signal(syscall.SIGTERM)
			if m == b.leader {
				h.add(l, b, signalled)
			}
			m.waitEnd()
			m.start()
			l.waitWrite()
			gaps[m == b.leader] = append(gaps[m == b.leader], longestGap(l.journal.since(signalled), signalled, time.Now()))
		}
	})
	h.gap = gaps[true]
	h.finish(t, fmt.Sprint("rolling restart, handovers: ", len(h.first)), times, l)
	for led, all := range gaps {
		if worst := all.percentile(100); *longrun.Full && worst > 300*time.Millisecond {
			t.Errorf("nothing is written for %s while a replica is restarted (leader: %t)", worst, led)
		}
		t.Logf("leader: %t, write gaps %s ms", led, milliseconds(all))
	}
}
