package ha

import (
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// staleness is how far the count of a series may be behind while it has budget
// (docs/correlation.md), and so the greatest age of what a leader has pending.
const staleness = 30 * time.Second

// longTermEvery is the number of terms per one that is longer than that: a short term has
// nothing pending that is older than itself.
const longTermEvery = 5

// The leader is killed again and again: what was acknowledged is stored, deferred or not,
// and counts once. The next leader writes what the dead one has left.
func TestLeaderThatIsKilledLosesNothing(t *testing.T) {
	l := startLoad(t, testenv.Shared(t), shortLease...)
	var first durations
	var killed []time.Time
	adopted := 0.
	repeat(t, 20, 2, func(i int) {
		if *longrun.Full && i%longTermEvery == 0 {
			l.waitPosted(time.Now().Add(staleness + 5*time.Second))
		}
		l.waitFollowed(replicas - 1)
		b := l.observe()
		signalled := time.Now()
		b.leader.signal(syscall.SIGKILL)
		<-b.leader.process().Done() // until then it may acknowledge
		killed = append(killed, time.Now())
		first = append(first, l.waitTaken(b, signalled).at.Sub(signalled))
		l.service.remove(b.leader.name)
		b.leader.start()
		l.waitWrite()
		adopted += l.waitAdopted()
	})
	o := l.end(t, false)
	l.wantAcknowledged(t)
	if n := len(o.forgotten); n > 0 {
		t.Errorf("%d occurrences that were acknowledged are not stored, such as %+v; leaders were killed at %v", n, o.forgotten[0], killed)
	}
	if adopted == 0 {
		t.Error("no leader has written what the one before had pending")
	}
	d := stored.Diff(l.wanted(o.fate), storedBy(t, l.cluster, l.plain.namespace, source), seriesOf)
	if d != (stored.Difference{}) {
		t.Errorf("beside what is known of each name %d are lost, %d counted twice, and there are %d duplicates", d.Lost, d.Twice, d.Duplicates)
	}
	longrun.Report(t, "%d of %d posts were acknowledged with 202, %v occurrences adopted", o.deferred, len(l.posts), adopted)
	for percent, limit := range map[int]time.Duration{50: 3200 * time.Millisecond, 99: 4 * time.Second} {
		if took := first.percentile(percent); *longrun.Full && took > limit {
			t.Errorf("the first write of the new leader is committed after %s (p%d)", took, percent)
		}
	}
}

// waitAdopted waits until the leader has written what former leaders have left, and returns
// how much it has adopted.
func (l *load) waitAdopted() float64 {
	l.t.Helper()
	leader, _ := l.leader()
	await.Until(l.t, leader.name+" holds nothing of former leaders", func() bool { return leader.read("eventd_held_occurrences") == 0 })
	return leader.read("eventd_occurrences_adopted_total")
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

// The leader is killed while clients report occurrences that it does not write for hours.
// They are answered 202, and the next leader writes them.
func TestDeferredOccurrencesSurviveALeaderThatIsKilled(t *testing.T) {
	least := longrun.Either(5000, 500)
	l := startLoad(t, testenv.Shared(t), "--budget-burst=1", "--budget-qps=0.00001")
	o := l.newDeferred(least)
	var killed []time.Time
	repeat(t, 10, 2, func(int) {
		leader := l.waitFollowed(replicas - 1)
		var posting sync.WaitGroup
		posting.Go(func() { o.postAll(o.all) })
		await.Until(t, "half of the series are deferred", func() bool { return leader.read("eventd_sink_deferred_series") >= float64(least/2) })
		leader.signal(syscall.SIGKILL)
		<-leader.process().Done()
		killed = append(killed, time.Now())
		posting.Wait()
		l.service.remove(leader.name)
		leader.start()
		l.waitWrite()
		if n := l.waitAdopted(); n < float64(least/2) {
			t.Errorf("%v occurrences are adopted, want %d", n, least/2)
		}
	})
	l.end(t, false)
	for _, made := range o.missing(t, l.cluster) {
		t.Errorf("%+v is not stored; leaders were killed at %v", made, killed)
	}
	o.wantStored(t, l.cluster)
}

// missing are the posts that no stored Event names.
func (p *plain) missing(t *testing.T, cluster *testenv.ControlPlane) (missing []post) {
	t.Helper()
	posts, _ := p.ledger()
	for _, e := range storedBy(t, cluster, p.namespace, source) {
		s, err := versionOf(&e)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for key := range s.clients {
			delete(posts, key)
		}
	}
	return slices.Collect(maps.Values(posts))
}
