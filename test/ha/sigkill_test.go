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
	"github.com/eventd/eventd/test/testenv"
)

// The leader is killed while clients report occurrences that it does not write for hours.
// They are answered 202, and the next leader writes them.
func TestDeferredOccurrencesSurviveALeaderThatIsKilled(t *testing.T) {
	least := longrun.Either(5000, 500)
	l := startLoad(t, clusterOf(t), deferAll...)
	o := l.newDeferred(least)
	var killed []time.Time
	repeat(t, 10, 1, func(int) {
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
		if _, n := l.waitAdopted(); n < float64(least/2) {
			t.Errorf("%v occurrences are adopted, want %d", n, least/2)
		}
	})
	outcome := l.end(t, false)
	for _, made := range o.missing(t, l.cluster) {
		t.Errorf("%+v is not stored; leaders were killed at %v", made, killed)
	}
	l.wantAllStored(t, outcome, o)
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

// The leader and its only follower are killed at once: what was acknowledged with 202 and is not
// written is lost, and nothing else.
func TestOnlyWhatNoReplicaHoldsAnyMoreIsLost(t *testing.T) {
	l := startLoadAt(t, many(), clusterOf(t), deferring...)
	var killed []time.Time
	most := 0
	repeat(t, 10, 1, func(int) {
		leader := l.waitFollowed(replicas - 1)
		third := l.standby(leader, 1)
		third.signal(syscall.SIGTERM)
		third.waitEnd()
		l.waitFollowed(1)
		l.waitWrite()
		acknowledged := l.plain.acknowledged()
		most += int(leader.read("eventd_occurrences_pending")) - acknowledged
		both := []*member{leader, l.standby(leader, 0)}
		atOnce(both, func(m *member) {
			m.signal(syscall.SIGKILL)
			<-m.process().Done()
			l.service.remove(m.name)
		})
		killed = append(killed, time.Now())
		most += l.plain.number()
		atOnce(l.members, (*member).start)
		l.waitWrite()
	})
	o := l.end(t, false)
	l.wantAcknowledged(t)
	longrun.Report(t, "%d of %d that were acknowledged with 202 are lost, at most %d were pending", len(o.forgotten), o.deferred, most)
	if n := len(o.forgotten); n == 0 || n > most {
		t.Errorf("%d are lost, and at most %d were pending", n, most)
	}
	for _, made := range o.forgotten {
		if made.began.After(killed[len(killed)-1]) {
			t.Fatalf("%+v is not stored; replicas were killed at %v", made, killed)
		}
	}
}
