package ha

import (
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/longrun"
)

// handovers are repeated.
type handovers struct {
	*load
	// first is from the signal to the new leader's first write of an occurrence that
	// was posted after the signal.
	first durations
}

// add measures a handover, once the load is steady again.
func (h *handovers) add(b before, signalled time.Time) {
	h.t.Helper()
	taken := h.waitTaken(b, signalled)
	h.waitPosted(taken.at.Add(500 * time.Millisecond))
	h.first = append(h.first, taken.at.Sub(signalled))
}

// finish ends the load, and checks what holds for planned handovers.
func (h *handovers) finish(t *testing.T, also ...*deferred) {
	t.Helper()
	h.stopPosting()
	h.waitSent(t)
	o := h.load.finish(t, false, also...)
	h.recorders.wantStored(t, h.cluster)
	longrun.Report(t, "%d handovers, %v occurrences; first write of the new leader after %s (p50), %s (p99)",
		len(h.first), h.accounts["recorded"], h.first.percentile(50), h.first.percentile(99))
	if n := o.seen.unanswered(); n > 0 {
		t.Errorf("%d requests were not answered", n)
	}
	if len(o.outside) > 0 || o.retried > 0 { // by more than client-go's rest client
		t.Errorf("in planned handovers %d posts are retried, and counted twice are %v", o.retried, o.outside)
	}
}

// The leader is terminated again and again with thousands of deferred series: the next
// one continues at once, and nothing is lost or counted twice.
func TestLeaderHandsOver(t *testing.T) {
	least := longrun.Either(5000, 500)
	l := startLoad(t, clusterOf(t), deferAll...)
	o := l.newDeferred(least)
	h := &handovers{load: l}
	repeat(t, 50, 2, func(int) {
		o.postAll(o.all)
		b := l.observe()
		if n := b.leader.read("eventd_sink_deferred_series"); n < float64(least) {
			t.Errorf("%v series are deferred, want %d", n, least)
		}
		signalled := time.Now()
		b.leader.signal(syscall.SIGTERM)
		h.add(b, signalled)
		b.leader.waitEnd()
		if next, _ := l.leader(); next == b.leader {
			t.Errorf("%s leads, and has ended", next.name)
		}
		b.leader.start()
	})
	h.finish(t, o)
	if p99 := h.first.percentile(99); *longrun.Full && p99 > 300*time.Millisecond {
		t.Errorf("the first write of the new leader is committed after %s (p99)", p99)
	}
}

// All replicas are restarted, one after the other, as a rollout does.
func TestRollingRestartLosesNothing(t *testing.T) {
	l := startLoad(t, clusterOf(t))
	h := &handovers{load: l}
	gaps := map[bool]durations{} // by whether it was the leader
	repeat(t, 5, 1, func(int) {
		for _, m := range l.members {
			b := l.observe()
			signalled := time.Now()
			m.signal(syscall.SIGTERM)
			if m == b.leader {
				h.add(b, signalled)
			}
			m.waitEnd()
			m.start()
			l.waitWrite()
			gaps[m == b.leader] = append(gaps[m == b.leader], longestGap(l.journal.since(signalled), signalled, time.Now()))
		}
	})
	h.finish(t)
	for led, all := range gaps {
		if worst := all.percentile(100); *longrun.Full && worst > 300*time.Millisecond {
			t.Errorf("nothing is written for %s while a replica is restarted (leader: %t)", worst, led)
		}
	}
}
