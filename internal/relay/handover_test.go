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

	"github.com/eventd/eventd/test/await"
)

// trio is three replicas, of which one leads, and a round robin in front of them.
type trio struct {
	replicas [3]*replica
	at       [3]*listening
	leader   int
	next     atomic.Int64
	client   *kubernetes.Clientset
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{}
	for i := range c.replicas {
		// So that no handover fails on a machine that is busy.
		c.replicas[i] = newReplica(t, options{leaderWait: 25 * time.Second})
		c.at[i] = listen(t, c.replicas[i])
	}
	config := &rest.Config{Host: "https://eventd", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}
	var err error
	if c.client, err = kubernetes.NewForConfigAndClient(config, &http.Client{Transport: c}); err != nil {
		t.Fatal(err)
	}
	c.elect(t, 0)
	return c
}

// elect names the leader to the others, and has it lead, in any order.
func (c *trio) elect(t *testing.T, leader int) {
	t.Helper()
	var named sync.WaitGroup
	for i, r := range c.replicas {
		if i != leader {
			named.Go(func() { c.at[leader].leads(r) })
		}
	}
	c.leader = leader
	c.replicas[leader].lead(t)
	named.Wait()
}

func (c *trio) handOver(t *testing.T) {
	t.Helper()
	c.replicas[c.leader].resign()
	for _, r := range c.replicas {
		r.relay.SetLeader("", "")
	}
	c.elect(t, (c.leader+1)%len(c.replicas))
}

// RoundTrip sends each request to another replica.
func (c *trio) RoundTrip(req *http.Request) (*http.Response, error) {
	at := c.at[int(c.next.Add(1))%len(c.at)]
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host = "https", at.address()
	return at.Client().Transport.RoundTrip(req)
}

// recorded is how often something was recorded under each name, anywhere, and the highest
// total of all.
func (c *trio) recorded() (times map[string]int, highest int64) {
	times = make(map[string]int)
	for _, r := range c.replicas {
		for _, o := range r.Pipeline.Occurrences() {
			times[o.Client]++
			highest = max(highest, o.Total)
		}
	}
	return times, highest
}

func TestPlannedHandoverIsNotSeenByClients(t *testing.T) {
	c := newTrio(t)
	const clients, each, handovers = 8, 60, 6
	events := c.client.CoreV1().Events("ns")
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
		await.Until(t, "there is load", func() bool { return posted.Load() >= int64(clients*each*n/handovers) })
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
		if r.Metric(t, "eventd_relay_requests_total", "201") == 0 {
			t.Errorf("replica %d has forwarded nothing", i)
		}
		// client-go sends a request again after 503: its callers do not see it, but a
		// handover must not rely on it.
		for _, reason := range []string{"no_leader", "not_leading", "unreachable", "lost", "unauthorized", "no_token", "timeout"} {
			r.WantMetric(t, 0, "eventd_relay_refused_total", reason)
		}
	}
}

func TestUnmodifiedRecorderThroughAllReplicas(t *testing.T) {
	c := newTrio(t)
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1000}))
	defer broadcaster.Shutdown()
	watch := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	defer watch.Stop()
	recorder := broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "test"})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "ns", UID: "uid"}}
	const repeats, handovers = 60, 3
	awaitTotal := func(total int64) {
		await.Until(t, "so many were recorded", func() bool {
			_, highest := c.recorded()
			return highest >= total
		})
	}
	for n := range int64(handovers) {
		for range repeats / handovers {
			recorder.Event(pod, corev1.EventTypeNormal, "Repeated", "again")
		}
		awaitTotal(n*repeats/handovers + 1)
		c.handOver(t)
	}
	awaitTotal(repeats)
	// A new leader does not know the name, and the client sends it the whole count.
	if times, highest := c.recorded(); len(times) > 1+handovers || highest != repeats {
		t.Errorf("recorded %v, %d in all", times, highest)
	}
}
