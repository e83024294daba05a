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
		if _, n := l.waitAdopted(); n < float64(least/2) {
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
