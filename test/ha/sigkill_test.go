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

var crashFigures = figures.NewTable("A leader that is killed under load, with a lease of 3 s; times are p50 / p99 / max in ms",
	"times", "signal to new leader's first write", "occurrences", "requests without an answer", "posted again",
	"lost of 200/201", "lost of 202", "oldest of these, s", "counted twice", "beyond 64 names", "504 at the client's own deadline",
	"classic recorder: recorded -lost +twice", "new-style recorder")

// staleness is how far the count of a series may be behind while it has budget, and so
// the greatest age of what a crash loses: docs/correlation.md.
const staleness = 30 * time.Second

// longTermEvery is the number of terms per one that is longer than that: a short term
// cannot lose what is older than itself.
const longTermEvery = 5

// The leader is killed again and again: what was acknowledged as written is stored,
// what was deferred and is lost is not older than staleness, and retries count once.
func TestLeaderThatIsKilledLosesNothingThatWasWritten(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), append([]string{settling}, shortLease...)...)
	l := f.startLoad()
	var first durations
	var killed []time.Time
	done := repeat(t, repetitions(20, 2), func(i int) {
		if *longrun.Full && i%longTermEvery == 0 {
			l.waitPosted(time.Now().Add(staleness + 5*time.Second))
		}
		b := l.observe()
		signalled := time.Now()
		b.leader.signal(syscall.SIGKILL)
		<-b.leader.process().Done() // until then it may acknowledge
		killed = append(killed, time.Now())
		taken := l.waitTaken(b, signalled)
		first = append(first, taken.at.Sub(signalled))
		b.leader.waitKilled()
		b.leader.start()
		l.waitWrite()
	})
	l.end()
	f.stop()
	l.wantAcknowledged(t)
	l.wantNoFinalErrors(t, false)
	fates := l.fates()
	fates.wantKept(t)
	oldest := oldestForgotten(t, fates.forgotten, killed)
	if oldest > staleness {
		t.Errorf("what was acknowledged %s before the leader was killed is not stored", oldest)
	}
	d := stored.Diff(l.wanted(fates), storedBy(t, f.cluster, l.plain.namespace, source), seriesOf)
	if d != (stored.Difference{}) {
		t.Errorf("beside what is known of each name %d are lost, %d counted twice, and there are %d duplicates", d.Lost, d.Twice, d.Duplicates)
	}
	seen := l.service.answered()
	classic, newStyle := l.recorded(t)
	crashFigures.Add(done, milliseconds(first), fates.names, seen.unanswered(), fates.retried,
		len(fates.lost), len(fates.forgotten), fmt.Sprintf("%.1f", oldest.Seconds()), len(fates.twice), len(fates.outside), seen.timedOut(), classic, newStyle)
	if *longrun.Full {
		if p50 := first.percentile(50); p50 > 3200*time.Millisecond {
			t.Errorf("the first write of the new leader is committed after %s (p50)", p50)
		}
		if p99 := first.percentile(99); p99 > 4*time.Second {
			t.Errorf("the first write of the new leader is committed after %s (p99)", p99)
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
		crash := nextAfter(killed, made.acked)
		if crash.IsZero() {
			t.Errorf("%+v was deferred after the last crash, and is not stored", made)
			continue
		}
		oldest = max(oldest, crash.Sub(made.acked))
	}
	return oldest
}

// nextAfter is the first of some moments, in their order, that is not before another.
func nextAfter(moments []time.Time, moment time.Time) time.Time {
	for _, m := range moments {
		if !m.Before(moment) {
			return m
		}
	}
	return time.Time{}
}
