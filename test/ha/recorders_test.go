package ha

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/test/await"
)

const (
	classicSource, newStyleSource = "classic-recorder", "new-style-recorder"
	// recordEvery is slow enough for one recorder's queue to hold all that is recorded
	// during a failover.
	recordEvery = 50 * time.Millisecond
	// recordedSeries are those that the classic recorder repeats.
	recordedSeries = 10
	// newStyleEvery lets the new-style recorder record less often. Every six minutes it
	// writes the series that have ended, one after the other, and reports nothing
	// meanwhile. That must be short compared with the wait at the end of the load.
	newStyleEvery = 5
)

// recorders are unmodified ones of client-go, which correlate: the classic one patches
// the counts of a few series; the new-style one reports each series twice, since it
// does not report later occurrences.
type recorders struct {
	namespace string
	classic   record.EventRecorder
	newStyle  events.EventRecorder
	shutdown  func()

	classicReports, newStyleReports *reports
}

func newRecorders(t *testing.T, config *rest.Config, namespace string) *recorders {
	t.Helper()
	r := &recorders{namespace: namespace, classicReports: newReports(classicSource), newStyleReports: newReports(newStyleSource)}
	// A rate limit, as controllers have: after it has written the series that have ended,
	// the new-style one reports all at once, and without a limit each on a new connection.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	clients := kubernetes.NewForConfigOrDie(config)
	// Without its spam filter and aggregation, and with retries after 100 ms.
	classic := record.NewBroadcaster(
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1_000_000, QPS: 1_000_000, MaxEvents: 1_000_000}),
		record.WithSleepDuration(100*time.Millisecond),
	)
	classic.StartRecordingToSink(&classicSink{typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, r.classicReports})
	newStyle := events.NewBroadcaster(&newStyleSink{events.EventSinkImpl{Interface: clients.EventsV1()}, r.newStyleReports})
	ctx, cancel := context.WithCancel(t.Context())
	if err := newStyle.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	r.shutdown = sync.OnceFunc(func() {
		classic.Shutdown()
		cancel()
		newStyle.Shutdown()
	})
	t.Cleanup(r.shutdown)
	r.classic = classic.NewRecorder(scheme.Scheme, corev1.EventSource{Component: classicSource})
	r.newStyle = newStyle.NewRecorder(scheme.Scheme, newStyleSource)
	return r
}

// classicSink is client-go's own, and adds its reports.
type classicSink struct {
	typedcorev1.EventSinkImpl
	*reports
}

func (s *classicSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return send(s.reports, request{of: seriesOf(e), total: int64(e.Count)}, func() (*corev1.Event, error) {
		return s.EventSinkImpl.Create(e)
	})
}

func (s *classicSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return send(s.reports, request{of: seriesOf(e), total: int64(e.Count), patch: true}, func() (*corev1.Event, error) {
		return s.EventSinkImpl.Patch(e, data)
	})
}

// newStyleSink is the same for the other API.
type newStyleSink struct {
	events.EventSinkImpl
	*reports
}

func newStyleRequest(e *eventsv1.Event) request {
	r := request{of: series{e.Regarding.Name, e.Reason}, total: 1}
	if e.Series != nil {
		r.total, r.raise = int64(e.Series.Count), true
	}
	return r
}

// Create may overtake the first POST of a series: client-go patches before the answer
// to that, and posts the whole series if there is nothing to patch.
func (s *newStyleSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return send(s.reports, newStyleRequest(e), func() (*eventsv1.Event, error) {
		return s.EventSinkImpl.Create(ctx, e)
	})
}

func (s *newStyleSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	r := newStyleRequest(e)
	r.patch = true
	return send(s.reports, r, func() (*eventsv1.Event, error) {
		return s.EventSinkImpl.Patch(ctx, e, data)
	})
}

// goOn records until end is called.
func (r *recorders) goOn() (end func()) {
	done := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		tick := time.NewTicker(recordEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			r.record(n)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		working.Wait()
	}
}

func (r *recorders) record(n int) {
	repeated := fmt.Sprint("recorded-", n%recordedSeries)
	r.classicReports.record(series{repeated, "Recorded"})
	r.classic.Event(r.pod(repeated), corev1.EventTypeNormal, "Recorded", "it happened again")
	if n%newStyleEvery != 0 {
		return
	}
	twice := fmt.Sprint("new-style-", n/newStyleEvery/2)
	r.newStyleReports.record(series{twice, "Recorded"})
	r.newStyle.Eventf(r.pod(twice), nil, corev1.EventTypeNormal, "Recorded", "Recording", "it happened")
}

func (r *recorders) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, UID: "uid"}}
}

// end returns when client-go has finished all that was recorded, or has dropped some
// after a dozen requests without an answer. It does not report that: then no request
// is in flight, and none has ended for longer than its longest pause. After end there
// are no requests.
func (r *recorders) end(t *testing.T) {
	t.Helper()
	const longestPause = 13 * time.Second
	for _, a := range []*reports{r.classicReports, r.newStyleReports} {
		await.Until(t, "the "+a.source+" has sent all", func() bool { return a.isSent() || a.isQuiet(longestPause) })
		await.Until(t, "the "+a.source+" has sent the last of its repetitions", a.close)
	}
	r.shutdown()
}
