package ha

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

const (
	classicSource, newStyleSource = "classic-recorder", "new-style-recorder"
	// recordEvery is slow enough for one recorder's queue to hold what comes
	// while it waits for a failover.
	recordEvery = 50 * time.Millisecond
	// recordedSeries are those that the classic recorder repeats.
	recordedSeries = 10
)

// recorders are unmodified ones of client-go, which correlate by themselves: the
// classic one patches the counts of a few series; the new-style one reports each
// series twice, since it keeps later occurrences to itself.
type recorders struct {
	namespace string
	classic   record.EventRecorder
	newStyle  events.EventRecorder
	ended     atomic.Int64 // requests
	done      atomic.Int64 // occurrences that client-go has done with
	rejected  atomic.Int64 // and given up
	outrun    atomic.Int64 // posted again with a higher count while the first POST was under way, and answered with that

	mu                          sync.Mutex
	classicCount, newStyleCount counts
}

func newRecorders(t *testing.T, config *rest.Config, namespace string) *recorders {
	t.Helper()
	r := &recorders{namespace: namespace, classicCount: counts{}, newStyleCount: counts{}}
	clients := kubernetes.NewForConfigOrDie(config)
	// Its spam filter and its aggregation are opened, and it does not wait for ten
	// seconds before it tries again.
	classic := record.NewBroadcaster(
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1_000_000, QPS: 1_000_000, MaxEvents: 1_000_000}),
		record.WithSleepDuration(100*time.Millisecond),
	)
	classic.StartRecordingToSink(&classicSink{typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, r})
	newStyle := events.NewBroadcaster(&newStyleSink{events.EventSinkImpl{Interface: clients.EventsV1()}, r})
	if err := newStyle.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		classic.Shutdown()
		newStyle.Shutdown()
	})
	r.classic = classic.NewRecorder(scheme.Scheme, corev1.EventSource{Component: classicSource})
	r.newStyle = newStyle.NewRecorder(scheme.Scheme, newStyleSource)
	return r
}

// note notes what became of a request. client-go does not try again what it has
// had any answer to, but posts what was not there to be patched.
func (r *recorders) note(patched bool, err error) {
	r.ended.Add(1)
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
	case !errors.As(err, &status), patched && apierrors.IsNotFound(err):
		return
	default:
		r.rejected.Add(1)
	}
	r.done.Add(1)
}

// classicSink is client-go's own, and tells when it is done with an occurrence.
type classicSink struct {
	typedcorev1.EventSinkImpl
	*recorders
}

func (s *classicSink) Create(e *corev1.Event) (*corev1.Event, error) {
	e, err := s.EventSinkImpl.Create(e)
	s.note(false, err)
	return e, err
}

func (s *classicSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	e, err := s.EventSinkImpl.Patch(e, data)
	s.note(true, err)
	return e, err
}

// newStyleSink is the same of the other API.
type newStyleSink struct {
	events.EventSinkImpl
	*recorders
}

// Create may overtake the first POST of a series: client-go patches before that is
// answered, and posts the whole series when there is nothing to patch.
func (s *newStyleSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	answered, err := s.EventSinkImpl.Create(ctx, e)
	if e.Series != nil && (apierrors.IsAlreadyExists(err) || err == nil && answered.Series == nil) {
		s.outrun.Add(1)
	}
	s.note(false, err)
	return answered, err
}

func (s *newStyleSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	e, err := s.EventSinkImpl.Patch(ctx, e, data)
	s.note(true, err)
	return e, err
}

// goOn records, until it is told to end.
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
	r.mu.Lock()
	defer r.mu.Unlock()
	repeated, twice := fmt.Sprint("recorded-", n%recordedSeries), fmt.Sprint("new-style-", n/2)
	r.classic.Event(r.pod(repeated), corev1.EventTypeNormal, "Recorded", "it happened again")
	r.classicCount[series{repeated, "Recorded"}]++
	r.newStyle.Eventf(r.pod(twice), nil, corev1.EventTypeNormal, "Recorded", "Recording", "it happened")
	r.newStyleCount[series{twice, "Recorded"}]++
}

func (r *recorders) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, UID: "uid"}}
}

// waitSent waits until client-go has done with all that was recorded, or has given
// some up, which it tells nobody: after a dozen requests without an answer. Then
// none has ended for longer than its longest pause.
func (r *recorders) waitSent(t *testing.T) {
	t.Helper()
	const longestPause = 13 * time.Second
	quiet := time.Now()
	ended := r.ended.Load()
	eventually(t, "client-go's recorders have sent all", func() bool {
		if now := r.ended.Load(); now != ended {
			ended, quiet = now, time.Now()
		}
		return r.givenUp() <= 0 || time.Since(quiet) > longestPause
	})
}

// givenUp is how many occurrences client-go has not been done with.
func (r *recorders) givenUp() int64 {
	classic, newStyle := r.counted()
	return classic.sum() + newStyle.sum() - r.done.Load()
}

// counted returns how much has been recorded by each recorder.
func (r *recorders) counted() (classic, newStyle counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classicCount, r.newStyleCount
}
