package ha

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// storm are clients of a leader that report many series whose writes are deferred, without a retry.
type storm struct {
	*deferred
	leader *member

	mu    sync.Mutex
	took  durations
	codes map[int]int
}

// Many series are reported again and again while their writes are deferred, first to a leader with
// followers, then to one that they cannot reach. Then nothing is answered 202, each series is written
// once in 10 s at most, and nobody waits for much more than a second.
func TestStormWhileAllFollowersAreLate(t *testing.T) {
	cluster := testenv.Shared(t)
	f := startFleet(t, cluster, deferAll...)
	s := &storm{deferred: f.newDeferred(longrun.Either(10_000, 100))}
	s.leader, _ = f.leader()
	config := rest.CopyConfig(replica.Account(t, cluster, s.namespace, "storm", "create", "patch"))
	config.Host, config.TLSClientConfig, config.QPS = s.leader.config().Host, s.leader.config().TLSClientConfig, -1
	s.client = kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient()
	length := longrun.Either(30*time.Second, 4*time.Second)

	s.rage(t, length) // creates the Events
	healthy := s.rage(t, length)
	if n := healthy.codes[http.StatusAccepted]; n == 0 {
		t.Errorf("with followers: %v", healthy)
	}
	s.leader.peers.Cut()
	defer s.leader.peers.Mend()
	late := s.rage(t, length)
	if n := late.codes[http.StatusAccepted]; n > 0 || late.codes[http.StatusTooManyRequests] == 0 || late.codes[http.StatusCreated] == 0 {
		t.Errorf("while no follower acknowledges: %v", late)
	}
	if most := float64(len(s.all)) * (1 + late.seconds/10); late.early == 0 || late.early > most {
		t.Errorf("%v early writes of %d series within %.0f s", late.early, len(s.all), late.seconds)
	}
	longrun.Report(t, "%d series; with followers: %v; with late ones: %v", len(s.all), healthy, late)
	if *longrun.Full && late.took.percentile(99) > 2*time.Second {
		t.Errorf("clients wait for %v (p99)", late.took.percentile(99))
	}
}

// weather is what a storm costs.
type weather struct {
	took                   durations
	codes                  map[int]int
	writes, early, seconds float64
}

func (w weather) String() string {
	return fmt.Sprintf("%.0f posts/s, answers %v, after %v (p50), %v (p99), %.0f writes/s, %.0f of them early",
		float64(len(w.took))/w.seconds, w.codes, w.took.percentile(50).Round(time.Millisecond), w.took.percentile(99).Round(time.Millisecond),
		w.writes/w.seconds, w.early/w.seconds)
}

// rage reports the series in turn for a while.
func (s *storm) rage(t *testing.T, length time.Duration) (w weather) {
	t.Helper()
	s.took, s.codes = nil, map[int]int{}
	writes := func() float64 {
		return s.leader.read("eventd_sink_requests_total", "verb=create") + s.leader.read("eventd_sink_requests_total", "verb=patch")
	}
	before, early, began := writes(), s.leader.read("eventd_sink_early_writes_total"), time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var clients sync.WaitGroup
	workers := longrun.Either(300, 100)
	for i := range workers {
		clients.Go(func() {
			for n := i; ctx.Err() == nil; n += workers {
				s.postOnce(s.all[n%len(s.all)])
			}
		})
	}
	clients.Wait()
	w = weather{took: s.took, codes: s.codes, seconds: time.Since(began).Seconds()}
	w.writes, w.early = writes()-before, s.leader.read("eventd_sink_early_writes_total")-early
	return w
}

// postOnce posts an occurrence that nobody repeats.
func (s *storm) postOnce(of series) {
	var code int
	event, began := occurrenceOf(s.namespace, s.begin(of)), time.Now()
	s.client.Post().Namespace(s.namespace).Resource("events").MaxRetries(0).Body(event).Do(s.ctx).StatusCode(&code)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code]++
	s.took = append(s.took, time.Since(began))
}
