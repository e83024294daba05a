package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	batchapi "github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
)

// storm are clients of a leader that report many series in batches, whose writes are deferred, without a
// retry.
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
	cluster := clusterOf(t)
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
	if most := 2*time.Second + 2*healthy.took.percentile(99); *longrun.Full && late.took.percentile(99) > most {
		t.Errorf("clients wait for %v (p99), want at most %v", late.took.percentile(99), most)
	}
}

// weather is what a storm costs.
type weather struct {
	took                   durations
	codes                  map[int]int
	writes, early, seconds float64
}

func (w weather) String() string {
	return fmt.Sprintf("%.0f Events/s in batches, answers %v, after %v (p50), %v (p99), %.0f writes/s, %.0f of them early",
		w.events()/w.seconds, w.codes, w.took.percentile(50).Round(time.Millisecond), w.took.percentile(99).Round(time.Millisecond),
		w.writes/w.seconds, w.early/w.seconds)
}

func (w weather) events() (sum float64) {
	for _, n := range w.codes {
		sum += float64(n)
	}
	return sum
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
	// In flight are almost as many Events of batches as one namespace may have.
	workers, size := longrun.Either(25, 4), longrun.Either(100, 25)
	for i := range workers {
		clients.Go(func() {
			for n := i * size; ctx.Err() == nil; n += workers * size {
				var of []series
				for j := range size {
					of = append(of, s.all[(n+j)%len(s.all)])
				}
				s.postBatch(of)
			}
		})
	}
	clients.Wait()
	w = weather{took: s.took, codes: s.codes, seconds: time.Since(began).Seconds()}
	w.writes, w.early = writes()-before, s.leader.read("eventd_sink_early_writes_total")-early
	return w
}

// postBatch posts occurrences that nobody repeats.
func (s *storm) postBatch(of []series) {
	var events corev1.EventList
	for _, of := range of {
		events.Items = append(events.Items, *occurrenceOf(s.namespace, s.begin(of)))
	}
	var code int
	began := time.Now()
	body, err := s.client.Post().Namespace(s.namespace).Resource("events").Param(batchapi.Parameter, "true").MaxRetries(0).Body(&events).Do(s.ctx).StatusCode(&code).Raw()
	took := time.Since(began)
	answer := batchapi.Answer{Code: int32(code)}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.codes[0] += len(of)
		return
	}
	s.took = append(s.took, took)
	s.codes[int(answer.Code)] += len(of) - len(answer.Others)
	for _, other := range answer.Others {
		s.codes[int(other.Status.Code)]++
	}
}
