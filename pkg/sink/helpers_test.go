package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

// faultyClient loses some requests to a real apiserver, and some answers.
type faultyClient struct {
	Client
	lossPercent int
}

var errLost = errors.New("connection lost")

func (c *faultyClient) do(ask func() (*corev1.Event, error)) (*corev1.Event, error) {
	switch p := rand.IntN(100); {
	case p < c.lossPercent/2:
		return nil, errLost
	case p < c.lossPercent:
		ask()
		return nil, errLost
	default:
		return ask()
	}
}

func (c *faultyClient) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do(func() (*corev1.Event, error) { return c.Client.Create(ctx, api, event) })
}

func (c *faultyClient) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return c.do(func() (*corev1.Event, error) { return c.Client.Patch(ctx, api, namespace, name, patch) })
}

// bench is one sink under test.
type bench struct {
	*Sink
	t         *testing.T
	ledger    *ledger.Ledger
	namespace string
}

func clientFor(t *testing.T, config *rest.Config) Client {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return NewClient(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())
}

func unlimited() Options {
	o := DefaultOptions()
	o.QPS = math.Inf(1)
	return o
}

func newBench(t *testing.T, namespace string, c Client, o Options) *bench {
	b := &bench{t: t, ledger: ledger.New(), namespace: namespace}
	var err error
	if b.Sink, err = New(t.Context(), c, b.ledger, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close() })
	return b
}

// close drains the sink and checks that everything is accounted for.
func (b *bench) close() ledger.Totals {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), time.Minute)
	defer cancel()
	if left := b.Close(ctx); left.Series != 0 {
		b.t.Errorf("not written within a minute: %+v", left)
	}
	totals := b.ledger.Totals()
	if totals.Pending() != 0 {
		b.t.Errorf("recorded %d, settled %v", totals.Recorded, totals.Outcomes)
	}
	return totals
}

// record adds one occurrence of a series.
func (b *bench) record(series int, change ...func(*occurrence.Occurrence)) {
	b.recordLater(series, 0, change...)
}

// recordLater adds one whose write is deferred.
func (b *bench) recordLater(series int, delay time.Duration, change ...func(*occurrence.Occurrence)) {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: b.namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: b.namespace, Name: fmt.Sprint("pod-", series)},
		Reason:         "Tested", Message: "it was", Type: "Normal", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}
	o := &occurrence.Occurrence{Event: event, Weight: 1, Recorded: time.Now()}
	for _, c := range change {
		c(o)
	}
	b.ledger.Record(o)
	b.Add(o, occurrence.Target{Key: occurrence.KeyOf(identity.Of(event)), Event: event, Name: event.InvolvedObject.Name}, delay)
}

func newStyle(o *occurrence.Occurrence) {
	o.API = occurrence.EventsV1
	o.Event.EventTime = metav1.NowMicro()
	o.Event.FirstTimestamp, o.Event.LastTimestamp = metav1.Time{}, metav1.Time{}
	o.Event.ReportingController, o.Event.ReportingInstance, o.Event.Action = "example.com/test", "test-0", "Testing"
}

// stored lists what the apiserver has.
func stored(t *testing.T, namespace string) []corev1.Event {
	clients, err := kubernetes.NewForConfig(testenv.Shared(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := clients.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func wantStored(t *testing.T, namespace string, objects int, count int64) {
	t.Helper()
	events := stored(t, namespace)
	var sum int64
	for i := range events {
		sum += sinktest.Count(&events[i])
	}
	if len(events) != objects || sum != count {
		t.Errorf("%d Events with a count of %d in all are stored, want %d with %d", len(events), sum, objects, count)
	}
}

// scripted answers every request by a function.
type scripted func(ctx context.Context, v apiclient.Verb) (*corev1.Event, error)

func (s scripted) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	answer, err := s(ctx, apiclient.VerbCreate)
	if answer == nil && err == nil {
		answer = event.DeepCopy()
		answer.UID, answer.ResourceVersion = "uid", "1"
	}
	return answer, err
}

func (s scripted) Patch(ctx context.Context, _ occurrence.API, _, _ string, _ []byte) (*corev1.Event, error) {
	return s(ctx, apiclient.VerbPatch)
}

func hang(ctx context.Context, _ apiclient.Verb) (*corev1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func bubble(t *testing.T, c Client, change func(*Options), test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		o := unlimited()
		if change != nil {
			change(&o)
		}
		b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
		var err error
		if b.Sink, err = New(t.Context(), c, b.ledger, o); err != nil {
			t.Fatal(err)
		}
		test(t, b)
		b.Close(t.Context())
		if got := b.ledger.Totals(); got.Pending() != 0 || b.total != (totals{}) {
			t.Errorf("recorded %d, settled %v, held %+v", got.Recorded, got.Outcomes, b.total)
		}
		if f := b.fair; f.series != 0 || len(f.flows)+len(f.namespaces.byName)+len(f.tenants.byName)+len(f.namespaces.ranking)+len(f.tenants.ranking) != 0 {
			t.Errorf("%+v is accounted for, though nothing is pending", f)
		}
	})
}

// clocked is an in-process apiserver that records when it receives writes.
type clocked struct {
	mu     sync.Mutex
	begun  time.Time
	server *sinktest.Server
	writes []time.Duration // since begun
	takes  time.Duration   // what a write takes
	refuse func(since time.Duration) error
}

func newClocked() *clocked { return &clocked{server: sinktest.NewServer()} }

func (c *clocked) do(writes bool, request func() (*corev1.Event, error)) (*corev1.Event, error) {
	c.mu.Lock()
	since := time.Since(c.begun)
	if writes {
		c.writes = append(c.writes, since)
	}
	c.mu.Unlock()
	time.Sleep(c.takes)
	if c.refuse != nil {
		if err := c.refuse(since); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return request()
}

func (c *clocked) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do(true, func() (*corev1.Event, error) { return c.server.Create(event.Name, event) })
}

func (c *clocked) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	return c.do(string(patch) != "{}", func() (*corev1.Event, error) { return c.server.Patch(name, patch) })
}

// timed is bubble with a clocked apiserver whose clock begins with the test.
func timed(t *testing.T, c *clocked, change func(*Options), test func(t *testing.T, b *bench)) {
	bubble(t, c, change, func(t *testing.T, b *bench) {
		c.begun = time.Now()
		test(t, b)
	})
}

// wantWrites compares the times of all writes within a day.
func (c *clocked) wantWrites(t *testing.T, count int64, at ...time.Duration) {
	t.Helper()
	pass(24 * time.Hour)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.writes, at) {
		t.Errorf("written after %v, want %v", c.writes, at)
	}
	if got := c.server.Counted(); got != count {
		t.Errorf("counted %d, want %d", got, count)
	}
}

// pass lets time pass, and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// holds returns the totals of what is pending.
func (b *bench) holds() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// entries returns the number of pending entries.
func (b *bench) entries() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pending {
		n += len(p.counter.Pending())
	}
	return n
}

func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

func inNamespace(name string) func(*occurrence.Occurrence) {
	return func(o *occurrence.Occurrence) { o.Event.Namespace, o.Event.InvolvedObject.Namespace = name, name }
}

// byNamespace answers creates by the Event's namespace, and takes everything else.
type byNamespace map[string]func(ctx context.Context) error

func (c byNamespace) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	if answer := c[event.Namespace]; answer != nil {
		if err := answer(ctx); err != nil {
			return nil, err
		}
	}
	event = event.DeepCopy()
	event.UID, event.ResourceVersion = "uid", "1"
	return event, nil
}

func (c byNamespace) Patch(context.Context, occurrence.API, string, string, []byte) (*corev1.Event, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("events"), "")
}

func closeSoon(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b.Close(ctx)
}
