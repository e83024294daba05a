package relay_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// trio is three replicas, of which one leads, and a round robin in front of them.
type trio struct {
	replicas [3]*replica
	at       [3]*listening
	ended    <-chan error // of the leader's gate
	leader   int
	next     atomic.Int64
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{}
	for i := range c.replicas {
		// A machine that is busy with something else makes no handover fail.
		c.replicas[i] = standbyWith(t, written(), replicaOptions{leaderWait: 25 * time.Second})
		c.at[i] = listenTLS(t, c.replicas[i])
	}
	c.elect(t, 0)
	return c
}

// elect has a replica lead and the others know it, in no order in particular.
func (c *trio) elect(t *testing.T, leader int) {
	t.Helper()
	var told sync.WaitGroup
	for i, r := range c.replicas {
		if i != leader {
			told.Go(func() { c.at[leader].leads(r) })
		}
	}
	c.leader = leader
	c.ended = c.replicas[leader].lead(t)
	told.Wait()
}

// step ends the leader's term in order.
func (c *trio) step(t *testing.T) {
	t.Helper()
	c.replicas[c.leader].stopLeading(nil)
	if err := <-c.ended; err != nil {
		t.Error(err)
	}
	for _, r := range c.replicas {
		r.relay.SetLeader("", "")
	}
}

func (c *trio) handOver(t *testing.T) {
	t.Helper()
	c.step(t)
	c.elect(t, (c.leader+1)%len(c.replicas))
}

// RoundTrip sends each request to another replica.
func (c *trio) RoundTrip(req *http.Request) (*http.Response, error) {
	at := c.at[int(c.next.Add(1))%len(c.at)]
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = "https", at.address()
	return at.Client().Transport.RoundTrip(req)
}

func (c *trio) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config := &rest.Config{Host: "https://eventd", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// recorded is how often something was recorded under each name, anywhere, and
// the highest total of each.
func (c *trio) recorded() (times map[string]int, totals map[string]int64) {
	times, totals = make(map[string]int), make(map[string]int64)
	for _, r := range c.replicas {
		for _, o := range r.pipeline.occurrences() {
			times[o.Client]++
			totals[o.Client] = max(totals[o.Client], o.Total)
		}
	}
	return times, totals
}

func TestPlannedHandoverIsNotSeenByClients(t *testing.T) {
	c := newTrio(t)
	const clients, each, handovers = 8, 60, 6
	events := c.client(t).CoreV1().Events("ns")
	var posted atomic.Int64
	var done sync.WaitGroup
	for n := range clients {
		done.Go(func() {
			for i := range each {
				if _, err := events.Create(t.Context(), classic(fmt.Sprintf("a-%d-%d", n, i), 1), metav1.CreateOptions{}); err != nil {
					t.Errorf("a client is told: %v", err)
				}
				posted.Add(1)
			}
		})
	}
	for n := range handovers {
		until(t, "there is load", func() bool { return posted.Load() >= int64(clients*each*n/handovers) })
		c.handOver(t)
	}
	done.Wait()
	times, _ := c.recorded()
	if len(times) != clients*each {
		t.Errorf("recorded %d names of %d", len(times), clients*each)
	}
	for name, n := range times {
		if n != 1 {
			t.Errorf("%s was recorded %d times", name, n)
		}
	}
	for i, r := range c.replicas {
		if got := r.metric(t, "eventd_relay_requests_total", "201"); got == 0 {
			t.Errorf("replica %d has passed nothing on", i)
		}
		// client-go repeats a 503 by itself: its callers do not see it, but this is
		// not what a handover is to rely on.
		for _, reason := range []string{"no_leader", "not_leading", "unreachable", "lost", "unauthorized", "no_token", "timeout"} {
			if got := r.metric(t, "eventd_relay_refused_total", reason); got != 0 {
				t.Errorf("replica %d has refused %v requests: %s", i, got, reason)
			}
		}
	}
	c.step(t)
}

func TestUnmodifiedRecorderThroughAllReplicas(t *testing.T) {
	c := newTrio(t)
	client := c.client(t)
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1000}))
	defer broadcaster.Shutdown()
	watch := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	defer watch.Stop()
	recorder := broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "test"})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "ns", UID: "uid"}}
	const repeats, handovers = 60, 3
	highest := func() (highest int64) {
		_, totals := c.recorded()
		for _, total := range totals {
			highest = max(highest, total)
		}
		return highest
	}
	for n := range handovers {
		for range repeats / handovers {
			recorder.Event(pod, corev1.EventTypeNormal, "Repeated", "again")
		}
		until(t, "some were recorded", func() bool { return highest() > int64(n*repeats/handovers) })
		c.handOver(t)
	}
	until(t, "all were recorded", func() bool { return highest() >= repeats })
	// A new leader does not know the name, and is told the whole count of it.
	_, totals := c.recorded()
	if len(totals) > 1+handovers || highest() != repeats {
		t.Errorf("totals %v", totals)
	}
	c.step(t)
}
