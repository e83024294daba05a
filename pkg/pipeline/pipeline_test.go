package pipeline

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }

var source = corev1.EventSource{Component: "pipeline-test", Host: "node-1"}

func start(t *testing.T, r prometheus.Registerer, change ...func(*Options)) (*Pipeline, *kubernetes.Clientset) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(testenv.Shared(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.QueueCapacity = 100_000 // so that nothing is dropped
	o.Registerer = r
	for _, c := range change {
		c(&o)
	}
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(sink.NewClient(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())); err != nil {
		t.Fatal(err)
	}
	return p, clients
}

func TestEveryOccurrenceIsWrittenBeforeShutdownReturns(t *testing.T) {
	const series, repeats, recorders = 50, 20, 4
	namespace := testenv.Shared(t).Namespace(t)
	registry := prometheus.NewPedanticRegistry()
	p, clients := start(t, registry)
	var wg sync.WaitGroup
	for range recorders {
		r := p.NewRecorder(scheme.Scheme, source)
		wg.Go(func() {
			for i := range series * repeats {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("pod-", i%series)}}
				r.Eventf(pod, "Normal", "Tested", "%d series", series)
			}
		})
	}
	wg.Wait()
	drain(t, shutdownOf{p})

	list, err := clients.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != series {
		t.Errorf("%d Events, want %d", len(list.Items), series)
	}
	for _, e := range list.Items {
		if e.Count != repeats*recorders {
			t.Errorf("%s: count %d, want %d", e.Name, e.Count, repeats*recorders)
		}
	}
	totals := p.Totals()
	if totals.Recorded != series*repeats*recorders || totals.Written() != totals.Recorded || totals.Outcomes[occurrence.Created] != series {
		t.Errorf("ledger %+v", totals)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

func TestFlushWritesWhatIsDeferredAndThePipelineContinues(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	p, _ := start(t, nil, func(o *Options) { o.Correlator.Heartbeat = correlator.MaxHeartbeat })
	r := p.NewRecorder(scheme.Scheme, source)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}}
	for round := range int64(3) {
		r.Event(pod, "Normal", "Tested", "once")
		if round == 0 {
			eventually(t, "the first is written", func() bool { return p.Totals().Written() == 1 })
			continue
		}
		eventually(t, "the next is deferred", func() bool { return p.writer.sink.Pending().Occurrences == 1 })
		p.Flush(t.Context())
		if totals := p.Totals(); totals.Written() != round+1 || totals.Pending() != 0 {
			t.Errorf("after a flush: %+v", totals)
		}
	}
	drain(t, shutdownOf{p})
}

func TestClientsCombinedEventsAreOneSeries(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	p, clients := start(t, nil)
	r := p.NewRecorder(scheme.Scheme, source)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}}
	for i := range 10 {
		r.Eventf(pod, "Normal", "Tested", identity.CombinedPrefix+"message %d", i)
	}
	drain(t, shutdownOf{p})
	list, err := clients.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Count != 10 || list.Items[0].Message != identity.CombinedPrefix+"message 9" {
		t.Errorf("stored %+v", list.Items)
	}
	if got := p.Totals().Outcomes; got[occurrence.Created] != 1 || got[occurrence.Aggregated] != 9 {
		t.Errorf("ledger %v", got)
	}
}

func TestRecordingBeforeStartAndAfterShutdownIsCounted(t *testing.T) {
	p, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	r := p.NewRecorder(scheme.Scheme, source)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0"}}
	r.Event(pod, "Normal", "Early", "")
	r.Event(nil, "Normal", "Nothing", "")
	drain(t, shutdownOf{p})
	drain(t, shutdownOf{p})
	r.Event(pod, "Normal", "Late", "")
	totals := p.Totals()
	for _, reason := range []occurrence.Reason{occurrence.NoSink, occurrence.Malformed, occurrence.Shutdown} {
		if totals.Dropped[reason] != 1 {
			t.Errorf("%s: %d", reason, totals.Dropped[reason])
		}
	}
	if totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
	if err := p.StartSink(nil); err == nil {
		t.Error("a sink was started after the shutdown")
	}
}

func TestShutdownWithoutAnApiserverIsBoundedAndReportsWhatIsLost(t *testing.T) {
	away, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"}) // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	o.Sink.RetryBaseDelay, o.Sink.RetryMaxDelay = time.Minute, time.Minute // so that no request is in flight at the end
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(sink.NewClient(away.CoreV1().RESTClient(), away.EventsV1().RESTClient())); err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(nil); err == nil {
		t.Error("a second sink was started")
	}
	r := p.NewRecorder(scheme.Scheme, source)
	const recorded, series = 25, 5
	for i := range recorded {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("pod-", i%series)}}
		r.Event(pod, "Normal", "Tested", "")
	}
	eventually(t, "every series failed once", func() bool { return retries(t, registry) == series })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := p.Shutdown(ctx); err == nil {
		t.Error("nothing is reported as undelivered")
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	totals := p.Totals()
	if totals.Dropped[occurrence.Shutdown] != recorded || totals.Pending() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

// retries returns the number of retries of all sinks.
func retries(t *testing.T, r prometheus.Gatherer) (n float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "eventd_sink_retries_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}
