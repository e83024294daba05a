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

// oneWrite is a budget of one write per object, for as long as a test takes.
var oneWrite = []string{"--budget-burst=1", "--budget-qps=0.00001"}

// settling is how long a replica serves after SIGTERM: longer than the Service needs
// to notice.
const settling = "--shutdown-delay-duration=2s"

// handovers are repeated.
type handovers struct {
	first, gap, steady durations
	deferred           []float64
}

func (h *handovers) add(one handover) {
	h.first = append(h.first, one.first)
	h.gap = append(h.gap, one.gap)
	h.steady = append(h.steady, one.steady)
}

// figure adds the rows of a scenario, and checks what holds for planned handovers.
func (h *handovers) figure(t *testing.T, what string, done progress, l *load, d stored.Difference) {
	t.Helper()
	accounts := l.wantSettled(t)
	l.wantNoFinalErrors(t, false)
	seen := l.service.answered()
	handoverFigures.Add(what, done, figures.Spread(h.deferred...), milliseconds(h.first), milliseconds(h.gap), milliseconds(h.steady),
		accounts["recorded"], d.Lost, d.Twice, d.Duplicates)
	classic, newStyle := l.recorded(t)
	handoverAnswers.Add(what, seen.sum(func(answer) bool { return true }), seen.unanswered(), seen.repeated(), seen.final(), accounts["replayed"], classic, newStyle)
	for source, r := range map[string]recorded{classicSource: classic, newStyleSource: newStyle} {
		if r.Difference != (stored.Difference{}) {
			t.Errorf("the Events of the %s do not count what it was told: %s", source, r)
		}
	}
	if n := seen.unanswered(); n > 0 {
		t.Errorf("%d requests were not answered", n)
	}
	fates := l.fates()
	fates.wantKept(t)
	if len(fates.forgotten) > 0 || len(fates.outside) > 0 {
		t.Errorf("in planned handovers: %s", fates)
	}
	if fates.retried > 0 {
		t.Errorf("%d occurrences had to be posted again by more than client-go's rest client", fates.retried)
	}
}

// The leader is terminated again and again with thousands of deferred series: the next
// one continues at once, and nothing is lost or counted twice.
func TestLeaderHandsOver(t *testing.T) {
	least := longrun.Either(5000, 500)
	f := startFleet(t, testenv.Shared(t), append([]string{settling}, oneWrite...)...)
	l, o := f.startLoad(), f.newDeferred(least)
	sums := &handovers{}
	done := repeat(t, repetitions(50, 3), func(int) {
		o.postAll(o.all)
		b := l.observe()
		n := b.leader.metrics().Sum("eventd_sink_deferred_series")
		if n < float64(least) {
			t.Errorf("%v series are deferred, want %d", n, least)
		}
		sums.deferred = append(sums.deferred, n)
		signalled := time.Now()
		b.leader.signal(syscall.SIGTERM)
		sums.add(l.handover(b, signalled))
		b.leader.waitEnd()
		if next, _ := f.leader(); next == b.leader {
			t.Errorf("%s leads, and has ended", next.name)
		}
		b.leader.start()
	})
	l.end()
	f.stop()
	d := l.wantStored(t, f.cluster)
	d.Add(o.wantStored(t, f.cluster))
	sums.figure(t, "SIGTERM of the leader", done, l, d)
	if p99 := sums.first.percentile(99); *longrun.Full && p99 > 300*time.Millisecond {
		t.Errorf("the first write of the new leader is committed after %s (p99)", p99)
	}
}

// All replicas are restarted, one after the other, as a rollout does.
func TestRollingRestartLosesNothing(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), settling)
	l := f.startLoad()
	sums := &handovers{}
	gaps := map[bool]durations{} // by whether it was the leader
	done := repeat(t, repetitions(5, 2), func(int) {
		for _, m := range f.members {
			b := l.observe()
			signalled := time.Now()
			m.signal(syscall.SIGTERM)
			if m == b.leader {
				sums.add(l.handover(b, signalled))
			}
			m.waitEnd()
			m.start()
			l.waitWrite()
			ended := time.Now()
			gaps[m == b.leader] = append(gaps[m == b.leader], longestGap(l.journal.since(signalled), signalled, ended))
		}
	})
	l.end()
	f.stop()
	sums.gap = gaps[true]
	sums.figure(t, fmt.Sprint("rolling restart, handovers: ", len(sums.first)), done, l, l.wantStored(t, f.cluster))
	for led, all := range gaps {
		if worst := all.percentile(100); *longrun.Full && worst > 300*time.Millisecond {
			t.Errorf("nothing is written for %s while a replica is restarted (leader: %t)", worst, led)
		}
		t.Logf("leader: %t, write gaps %s ms", led, milliseconds(all))
	}
}
