package ha

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

const (
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
	shutdown  func()

	classic, newStyle *reports
}

// reports are those of one recorder: what it has recorded, and its requests, which go
// through it.
type reports struct {
	http.RoundTripper
	source string
	event  func(pod *corev1.Pod, reason string)

	mu        sync.Mutex
	recorded  counts
	written   int64     // requests that were answered so that the recorder takes the Event as written
	sending   int       // requests in flight
	lastEnded time.Time // of the requests
	closed    bool      // no more requests are made
}

func newRecorders(t *testing.T, config *rest.Config, namespace string) *recorders {
	t.Helper()
	r := &recorders{
		namespace: namespace,
		classic:   &reports{source: "classic-recorder", recorded: counts{}},
		newStyle:  &reports{source: "new-style-recorder", recorded: counts{}},
	}
	// Without its spam filter and aggregation, and with retries after 100 ms.
	classic := record.NewBroadcaster(
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1_000_000, QPS: 1_000_000, MaxEvents: 1_000_000}),
		record.WithSleepDuration(100*time.Millisecond),
	)
	classic.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.classic.clients(config).CoreV1().Events("")})
	newStyle := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.newStyle.clients(config).EventsV1()})
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
	classicRecorder := classic.NewRecorder(scheme.Scheme, corev1.EventSource{Component: r.classic.source})
	r.classic.event = func(pod *corev1.Pod, reason string) {
		classicRecorder.Event(pod, corev1.EventTypeNormal, reason, "it happened again")
	}
	newStyleRecorder := newStyle.NewRecorder(scheme.Scheme, r.newStyle.source)
	r.newStyle.event = func(pod *corev1.Pod, reason string) {
		newStyleRecorder.Eventf(pod, nil, corev1.EventTypeNormal, reason, "Recording", "it happened")
	}
	return r
}

// RoundTrip makes a request, unless the load has ended.
func (a *reports) RoundTrip(r *http.Request) (*http.Response, error) {
	if !a.begin() {
		// client-go does not retry after this answer. It repeats some requests forever.
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	response, err := a.RoundTripper.RoundTrip(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending--
	a.lastEnded = time.Now()
	if err == nil && (response.StatusCode < 300 || response.StatusCode == http.StatusConflict) {
		a.written++
	}
	return response, err
}

// isBehind reports whether so much waits in the recorder that it would soon drop Events without
// a word: its queue has 1000. On an overloaded machine one request at a time is too slow.
func (a *reports) isBehind() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recorded.Sum()-a.written > 500
}

// clients are those of the recorder, whose requests are counted.
func (a *reports) clients(config *rest.Config) *kubernetes.Clientset {
	config = rest.CopyConfig(config)
	// A rate limit, as controllers have: after it has written the series that have ended,
	// the new-style one reports all at once, and without a limit each on a new connection.
	config.QPS, config.Burst = 200, 400
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		a.RoundTripper = next
		return a
	})
	return kubernetes.NewForConfigOrDie(config)
}

func (a *reports) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.sending++
	}
	return !a.closed
}

// close refuses further requests, and reports whether all have ended.
func (a *reports) close() (ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.sending == 0
}

// goOn records until end is called, or the test ends.
func (r *recorders) goOn(t *testing.T) (end func()) {
	n := 0
	end = await.Every(recordEvery, func(context.Context) {
		if !r.classic.isBehind() {
			r.record(r.classic, fmt.Sprint("recorded-", n%recordedSeries))
		}
		if n%newStyleEvery == 0 {
			r.record(r.newStyle, fmt.Sprint("new-style-", n/newStyleEvery/2))
		}
		n++
	})
	t.Cleanup(end)
	return end
}

func (r *recorders) record(a *reports, name string) {
	of := series{name, "Recorded"}
	a.mu.Lock()
	a.recorded[of]++
	a.mu.Unlock()
	a.event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, UID: "uid"}}, of.reason)
}

// waitSent waits until client-go has sent all, or has dropped some after a dozen requests
// without an answer, which it does not report: then no request is in flight, and none
// has ended for longer than its longest pause.
func (r *recorders) waitSent(t *testing.T) {
	t.Helper()
	const longestPause = 13 * time.Second
	for _, a := range []*reports{r.classic, r.newStyle} {
		await.Until(t, "the "+a.source+" has sent all", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.sending == 0 && time.Since(a.lastEnded) >= longestPause
		})
	}
}

// wantStored checks that the Events count what was recorded.
func (r *recorders) wantStored(t *testing.T, cluster *testenv.ControlPlane) {
	t.Helper()
	for _, a := range []*reports{r.classic, r.newStyle} {
		stored.Want(t, a.recorded, storedBy(t, cluster, r.namespace, a.source), seriesOf)
	}
}

// end refuses further requests, and waits for those in flight.
func (r *recorders) end(t *testing.T) {
	t.Helper()
	for _, a := range []*reports{r.classic, r.newStyle} {
		await.Until(t, "the "+a.source+" has sent the last of its repetitions", a.close)
	}
	r.shutdown()
}
