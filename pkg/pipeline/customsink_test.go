package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/testenv"
)

// refuseFor returns a function that refuses calls for a time from now on.
func refuseFor(d time.Duration) func(*corev1.Event) error {
	begun := time.Now()
	return func(*corev1.Event) error {
		if time.Since(begun) < d {
			return apierrors.NewTooManyRequestsError("later") // without Retry-After
		}
		return nil
	}
}

// wrappedSink is the usual custom sink, which forwards to client-go's.
type wrappedSink struct{ record.EventSink }

func TestCustomSinkInFrontOfAnApiserverKeepsCountsExact(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	clients := writerClients(t, namespace, "")
	var broadcasters sync.WaitGroup
	for range 3 { // concurrently, so that they conflict
		broadcasters.Go(func() {
			b, r := recordTo(&wrappedSink{coreSink(clients)})
			for i := range 100 {
				r.Event(podIn(namespace, fmt.Sprint("web-", i%5)), "Normal", "Tested", "")
			}
			if totals := drain(t, b); totals.Written() != 100 {
				t.Errorf("ledger %+v", totals)
			}
		})
	}
	broadcasters.Wait()
	events := eventsIn(t, namespace)
	for _, e := range events {
		if e.Count != 60 || len(events) != 5 {
			t.Errorf("%s: count %d, of %d Events", e.Name, e.Count, len(events))
		}
	}
}

func TestCustomSinkGetsWholeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, echo := &memorySink{silent: true}, &memorySink{}
		b, classic := recordTo(silent)
		b.StartRecordingToSink(echo)
		newStyle := b.NewEventsRecorder(scheme.Scheme, "controller")
		const repeats = 20
		for i := range repeats {
			classic.AnnotatedEventf(podIn("ns", "web-0"), map[string]string{"k": "v"}, "Normal", "Tested", "message")
			newStyle.Eventf(podIn("ns", "web-0"), podIn("ns", "web-1"), "Warning", "Tested", "Testing", "note")
			if i == repeats/2 {
				synctest.Wait() // both are written
			}
		}
		drain(t, b)
		for _, sink := range []*memorySink{silent, echo} {
			sink.want(t, 2, 2*repeats)
			for _, e := range sink.stored() {
				if e.InvolvedObject.Name != "web-0" || e.Reason != "Tested" || e.Message == "" || e.Namespace != "ns" ||
					(e.Annotations["k"] == "v") != e.EventTime.IsZero() {
					t.Errorf("stored %+v", e)
				}
			}
		}
	})
}

// k/k#2508, k/k#140393: a call that never returns delays neither other Events nor the
// shutdown, and the number of goroutines does not grow with load.
func TestCustomSinkThatHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := &memorySink{before: func(e *corev1.Event) error {
			if e.InvolvedObject.Name == "stuck" {
				<-release
			}
			return nil
		}}
		o := DefaultOptions()
		o.Sink.Concurrency = 8
		b, r := recordTo(m, WithOptions(o))
		before := runtime.NumGoroutine()
		for i := range 1000 {
			r.Event(podIn("ns", "stuck"), "Normal", "Tested", "")
			r.Event(podIn("ns", fmt.Sprint("web-", i%50)), "Normal", "Tested", "")
			r.Eventf(podIn("ns", "stuck"), "Normal", "AlsoStuck", "%d", i%2)
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+2*o.Sink.Concurrency {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		time.Sleep(o.Correlator.Heartbeat) // the maximum delay of a count
		synctest.Wait()
		m.want(t, 50, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := b.ShutdownWithContext(ctx)
		var undelivered *UndeliveredError
		if !errors.As(err, &undelivered) || undelivered.Occurrences != 2000 || undelivered.Series != 3 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		totals := settled(t, b)
		if totals.Written() != 1000 || totals.Outcomes[occurrence.Uncertain]+totals.Dropped[occurrence.Shutdown] != 2000 {
			t.Errorf("ledger %+v", totals)
		}
		close(release)
	})
}

// kubernetes/ingress-nginx#4146: a response 429 without Retry-After loses nothing, nor does
// a 500 or a panic.
func TestCustomSinkThatRefusesForAWhileLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := refuseFor(10 * time.Second)
		var calls atomic.Int64
		m := &memorySink{before: func(e *corev1.Event) error {
			switch err := refuse(e); {
			case err == nil || calls.Add(1)%3 == 0:
				return err
			case calls.Load()%3 == 1:
				return apierrors.NewInternalError(errors.New("etcd"))
			default:
				panic("broken sink")
			}
		}}
		b, r := recordTo(m)
		recordPods(r, 100)
		drain(t, b)
		m.want(t, 100, 100)
	})
}

// A call that ends its goroutine, as FailNow does in a fake, delays no Event.
func TestCustomSinkThatEndsItsGoroutineIsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const series = 10
		var calls atomic.Int64
		m := &memorySink{before: func(*corev1.Event) error {
			if calls.Add(1) <= series {
				runtime.Goexit()
			}
			return nil
		}}
		o := DefaultOptions()
		o.Sink.Concurrency, o.Sink.MinConcurrency = 2, 2
		b, r := recordTo(m, WithOptions(o))
		begun := time.Now()
		recordPods(r, series)
		drain(t, b)
		m.want(t, series, series)
		if took := time.Since(begun); took >= o.Sink.RequestTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDeliveryEndsWithTheLastShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &memorySink{before: refuseFor(20 * time.Second)}
		b := NewRecordBroadcaster(WithContext(ctx))
		w := b.StartRecordingToSink(m)
		b.NewRecorder(scheme.Scheme, source).Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		synctest.Wait()
		w.Stop() // within 5 s
		cancel() // within 5 s
		synctest.Wait()
		drain(t, b) // within a minute
		m.want(t, 1, 1)
	})
}

func TestEventThatExpiredInACustomSinkIsCreatedAgain(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &memorySink{expires: true, silent: silent}
			b, r := recordTo(m)
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			synctest.Wait()
			m.mu.Lock()
			clear(m.events)
			m.mu.Unlock()
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
			if totals := drain(t, b); totals.Written() != 2 {
				t.Errorf("ledger %+v", totals)
			}
			m.want(t, 1, 1)
		})
	}
}
