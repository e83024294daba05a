package ha

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// staleness is how far the count of a series may be behind while it has budget, and so
// the greatest age of what a crash loses: docs/correlation.md.
const staleness = 30 * time.Second

// longTermEvery is the number of terms per one that is longer than that: a short term
// cannot lose what is older than itself.
const longTermEvery = 5

// The leader is killed again and again: what was acknowledged as written is stored,
// what was deferred and is lost is not older than staleness, and retries count once.
func TestLeaderThatIsKilledLosesNothingThatWasWritten(t *testing.T) {
	l := startLoad(t, testenv.Shared(t), shortLease...)
	var first durations
	var killed []time.Time
	repeat(t, 20, 2, func(i int) {
		if *longrun.Full && i%longTermEvery == 0 {
			l.waitPosted(time.Now().Add(staleness + 5*time.Second))
		}
		b := l.observe()
		signalled := time.Now()
		b.leader.signal(syscall.SIGKILL)
		<-b.leader.process().Done() // until then it may acknowledge
		killed = append(killed, time.Now())
		first = append(first, l.waitTaken(b, signalled).at.Sub(signalled))
		l.service.remove(b.leader.name)
		b.leader.start()
		l.waitWrite()
	})
	o := l.end(t, false)
	l.wantAcknowledged(t)
	oldest := oldestForgotten(t, o.forgotten, killed)
	if oldest > staleness {
		t.Errorf("what was acknowledged %s before the leader was killed is not stored", oldest)
	}
	d := stored.Diff(l.wanted(o.fate), storedBy(t, l.cluster, l.plain.namespace, source), seriesOf)
	if d != (stored.Difference{}) {
		t.Errorf("beside what is known of each name %d are lost, %d counted twice, and there are %d duplicates", d.Lost, d.Twice, d.Duplicates)
	}
	for percent, limit := range map[int]time.Duration{50: 3200 * time.Millisecond, 99: 4 * time.Second} {
		if took := first.percentile(percent); *longrun.Full && took > limit {
			t.Errorf("the first write of the new leader is committed after %s (p%d)", took, percent)
		}
	}
}

// wanted is what should be stored, by the fate of each name.
func (l *load) wanted(f fate) counts {
	_, want := l.ledger()
	for _, made := range f.forgotten {
		want[made.of]--
	}
	for _, made := range f.outside {
		want[made.of]++
	}
	return want
}

// oldestForgotten is the longest time from an acknowledgement to the next crash.
func oldestForgotten(t *testing.T, forgotten []post, killed []time.Time) (oldest time.Duration) {
	t.Helper()
	for _, made := range forgotten {
		crash := slices.IndexFunc(killed, func(at time.Time) bool { return !at.Before(made.acked) })
		if crash < 0 {
			t.Errorf("%+v was deferred after the last crash, and is not stored", made)
			continue
		}
		oldest = max(oldest, killed[crash].Sub(made.acked))
	}
	return oldest
}
