package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }

var source = corev1.EventSource{Component: "pipeline-test", Host: "node-1"}

// memorySink is a custom sink that stores Events by name.
type memorySink struct {
	before  func(event *corev1.Event) error // may refuse a call
	after   func() error                    // may lose the answer of a call
	refuses bool                            // to create what exists
	expires bool                            // refuses to patch what does not exist
	silent  bool                            // returns no Event

	mu     sync.Mutex
	events map[string]*corev1.Event
	calls  int
}

var _ record.EventSink = &memorySink{}

func (m *memorySink) Create(event *corev1.Event) (*corev1.Event, error) { return m.call(event, true) }
func (m *memorySink) Update(event *corev1.Event) (*corev1.Event, error) { return m.call(event, false) }
func (m *memorySink) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return m.call(event, false)
}

func (m *memorySink) call(event *corev1.Event, isNew bool) (*corev1.Event, error) {
	if m.before != nil {
		if err := m.before(event); err != nil {
			return nil, err
		}
	}
	if err := m.store(event, isNew); err != nil {
		return nil, err
	}
	if m.after != nil {
		if err := m.after(); err != nil {
			return nil, err
		}
	}
	if m.silent {
		return nil, nil
	}
	return event, nil
}

func (m *memorySink) store(event *corev1.Event, isNew bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	switch exists := m.events[event.Name] != nil; {
	case exists && isNew && m.refuses:
		return apierrors.NewAlreadyExists(eventsResource, event.Name)
	case !exists && !isNew && m.expires:
		return apierrors.NewNotFound(eventsResource, event.Name)
	case m.events == nil:
		m.events = make(map[string]*corev1.Event)
	}
	m.events[event.Name] = event.DeepCopy()
	return nil
}

// stored returns copies of the stored Events.
func (m *memorySink) stored() (out []corev1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		out = append(out, *e.DeepCopy())
	}
	return out
}

// want checks the number of stored Events, and the sum of their counts.
func (m *memorySink) want(t *testing.T, objects int, sum int64) {
	t.Helper()
	if events := m.stored(); len(events) != objects || sumOf(events) != sum {
		t.Errorf("%d Events with a count of %d are stored, want %d with %d", len(events), sumOf(events), objects, sum)
	}
}

// sumOf returns the sum of the counts.
func sumOf(events []corev1.Event) (sum int64) {
	for i := range events {
		sum += stored.Count(&events[i])
	}
	return sum
}

// newStyleSink is a custom sink of new-style Events, which it stores as classic ones.
type newStyleSink struct{ memorySink }

func (s *newStyleSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(event, true)
}

func (s *newStyleSink) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.call(event, false)
}

func (s *newStyleSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return s.call(event, false)
}

func (s *newStyleSink) call(event *eventsv1.Event, isNew bool) (*eventsv1.Event, error) {
	_, err := s.memorySink.call(identity.ToCoreV1(event), isNew)
	return nil, err
}

func coreSink(clients kubernetes.Interface) *typedcorev1.EventSinkImpl {
	return &typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}
}

// adminClients returns clients of the control plane, without a rate limit.
func adminClients(t *testing.T) *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
}

// writerClients returns clients of a ServiceAccount with the rights of most controllers: to
// create and patch events of an API group in a namespace.
func writerClients(t *testing.T, namespace, group string) *kubernetes.Clientset {
	t.Helper()
	config := testenv.Shared(t).ServiceAccount(t, namespace, "writer")
	testenv.Shared(t).Grant(t, namespace, "writer",
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}})
	return kubernetes.NewForConfigOrDie(config)
}

// eventsIn returns the Events that the control plane stores in a namespace.
func eventsIn(t *testing.T, namespace string) []corev1.Event {
	t.Helper()
	return stored.List(t, testenv.Shared(t), namespace)
}

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-" + types.UID(name)}}
}

// drainer is a broadcaster or a drainable.
type drainer interface {
	ShutdownWithContext(context.Context) error
}

// drainable adapts a Pipeline to drainer.
type drainable struct{ *Pipeline }

func (p drainable) ShutdownWithContext(ctx context.Context) error { return p.Shutdown(ctx) }

// startPipeline returns a Pipeline that writes to a client.
func startPipeline(t *testing.T, o Options, client sink.Client) drainable {
	t.Helper()
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(client); err != nil {
		t.Fatal(err)
	}
	return drainable{p}
}

// drain shuts down. It returns the totals of a sink; nothing is pending in any.
func drain(t *testing.T, b drainer) ledger.Totals {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.ShutdownWithContext(ctx); err != nil {
		t.Error(err)
	}
	return settled(t, b)
}

// settled returns the totals of a sink, after a shutdown. Nothing is pending in any.
func settled(t *testing.T, b drainer) (totals ledger.Totals) {
	t.Helper()
	for _, totals = range ledgers(b) {
		if totals.Pending() != 0 {
			t.Errorf("after the shutdown, the ledger is %+v", totals)
		}
	}
	return totals
}

// ledgers returns the totals of all sinks that have not been stopped.
func ledgers(b drainer) (out []ledger.Totals) {
	var s *stages
	switch b := b.(type) {
	case *RecordBroadcaster:
		s = b.stages
	case *EventsBroadcaster:
		s = b.stages
	case drainable:
		return []ledger.Totals{b.Totals()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.writers {
		out = append(out, w.ledger.Totals())
	}
	return out
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantSeries checks all series of a metric.
func wantSeries(t *testing.T, g prometheus.Gatherer, name string, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for series, value := range metrics.Gather(t, g) {
		if labels, ok := strings.CutPrefix(series, name+"{"); ok {
			got[strings.TrimSuffix(labels, "}")] = value
		}
	}
	wantEqual(t, name, want, got)
}

// metricsWith counts the series that have a label.
func metricsWith(t *testing.T, g prometheus.Gatherer, label string) (n int) {
	t.Helper()
	for series := range metrics.Gather(t, g) {
		if strings.Contains(strings.ReplaceAll(series, "}", ",}"), label+",") {
			n++
		}
	}
	return n
}

// with changes the default options.
func with(change func(*Options)) BroadcasterOption {
	o := DefaultOptions()
	change(&o)
	return WithOptions(o)
}

func withMetrics(r prometheus.Registerer) BroadcasterOption {
	return with(func(o *Options) { o.Registerer = r })
}

// recordPods records an Event of each of n Pods.
func recordPods(r record.EventRecorder, n int) {
	for i := range n {
		r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", "")
	}
}

// recordTo returns a broadcaster that writes to a sink, and a recorder of classic Events.
func recordTo(to record.EventSink, opts ...BroadcasterOption) (*RecordBroadcaster, record.EventRecorderLogger) {
	b := NewRecordBroadcaster(opts...)
	b.StartRecordingToSink(to)
	return b, b.NewRecorder(scheme.Scheme, source)
}
