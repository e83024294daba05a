package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/trail"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

// reportTo starts an intake behind a handler that may fail requests, and returns what it has
// recorded and how it is reached.
func reportTo(t *testing.T, faults func(http.Handler) http.Handler) (*intaketest.Pipeline, *rest.Config) {
	t.Helper()
	p := intaketest.Written()
	s := httptest.NewUnstartedServer(faults(intaketest.Serve(t, p).Handler))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return p, &rest.Config{Host: s.URL, BearerToken: "of-the-tester", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// counted is the sum of what an intake has recorded.
func counted(p *intaketest.Pipeline) (sum int64) {
	for _, weight := range p.Weights() {
		sum += weight
	}
	return sum
}

// Recorders report to an eventd whose answers are late, lost or refusals. What is acknowledged is
// counted once, and all that was recorded has an outcome.
func TestReportsToAnEventdWithFaultsAreCountedOnce(t *testing.T) {
	var requests atomic.Int64
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	p, config := reportTo(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			n := requests.Add(1)
			switch n % 8 {
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2:
				next.ServeHTTP(httptest.NewRecorder(), req) // the answer is lost
				panic(http.ErrAbortHandler)
			case 3:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			case 4:
				next.ServeHTTP(httptest.NewRecorder(), req) // the answer is late
				select {
				case <-req.Context().Done():
				case <-release:
				}
			case 5:
				panic(http.ErrAbortHandler)
			default:
				next.ServeHTTP(w, req)
			}
		})
	})
	b := NewRecordBroadcaster(with(func(o *Options) {
		o.Remote.RequestTimeout, o.Remote.RetryMaxDelay, o.Remote.MaxItems = 500*time.Millisecond, 200*time.Millisecond, 20
	}))
	b.StartRecordingToEventd(config)
	classic := b.NewRecorder(scheme.Scheme, source)
	newStyle := b.NewEventsRecorder(scheme.Scheme, "example.com/tester")
	const count = 3000
	for i := range count {
		object := podIn("ns", fmt.Sprint("web-", rand.IntN(100)))
		if i%2 == 0 {
			classic.Event(object, corev1.EventTypeNormal, "Tested", "it was tested")
		} else {
			newStyle.Eventf(object, nil, corev1.EventTypeWarning, "Tested", "Testing", "it was tested")
		}
		if i%100 == 0 { // so that there are several batches, and all kinds of answers
			seen := requests.Load()
			await.Until(t, "the next batch is sent", func() bool { return requests.Load() > seen })
		}
	}
	await.Until(t, "all is acknowledged", func() bool { return ledgers(b)[0].Outcomes[occurrence.Acknowledged] == count })
	if n := counted(p); n != count {
		t.Errorf("eventd has counted %d of %d", n, count)
	}
	if err := b.ShutdownWithContext(t.Context()); err != nil {
		t.Error(err)
	}
	if totals := ledgers(b); len(totals) > 0 && totals[0].Pending() != 0 {
		t.Errorf("%+v", totals[0])
	}
}

// A shutdown while eventd does not answer ends with its context, and settles everything.
func TestShutdownEndsThoughEventdHangs(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	_, config := reportTo(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			select {
			case <-release:
			case <-req.Context().Done():
			}
		})
	})
	b := NewRecordBroadcaster()
	b.StartRecordingToEventd(config)
	r := b.NewRecorder(scheme.Scheme, source)
	began := time.Now()
	for i := range 5000 {
		r.Event(podIn(fmt.Sprint("ns-", i%3), fmt.Sprint("web-", i)), corev1.EventTypeNormal, "Tested", "")
	}
	if took := time.Since(began); took > 20*time.Second { // a busy machine takes a while
		t.Errorf("recording took %v", took)
	}
	await.Until(t, "all is in the sink", func() bool { return b.queued() == 0 })
	w := onlyWriter(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began = time.Now()
	err := b.ShutdownWithContext(ctx)
	if took := time.Since(began); took > 20*shutdownLimit {
		t.Errorf("shutdown took %v", took)
	}
	if left, ok := err.(*UndeliveredError); !ok || left.Occurrences != 5000 {
		t.Errorf("%v", err)
	}
	totals := w.ledger.Totals()
	if totals.Pending() != 0 || totals.Outcomes[occurrence.Uncertain]+totals.Dropped[occurrence.Shutdown] != 5000 {
		t.Errorf("%v, dropped %v", totals.Outcomes, totals.Dropped)
	}
}

// hangingClient is a client of an eventd whose requests do not return.
type hangingClient struct{ never <-chan struct{} }

func (c hangingClient) Post(context.Context, occurrence.API, string, []byte) (*batch.Answer, error) {
	<-c.never
	return nil, context.Canceled
}

// What does not return adds up to no more than with any other sink: a request, the callback of an outcome,
// and an Origin that has yet to build its Event.
func TestShutdownIsBoundedThoughNothingReturnsToARemoteSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		p, err := New(t.Context(), DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.StartRemoteSink(hangingClient{never}); err != nil {
			t.Fatal(err)
		}
		sent, waiting := reported("ns", "", "a", 1), reported("ns", "", "b", 1)
		sent.Settled = func(occurrence.Settlement) { <-never }
		waiting.Settled = sent.Settled
		waiting.Event, waiting.Origin = nil, calledOrigin{waiting.Event, func() { <-never }}
		p.Record(sent)
		time.Sleep(time.Second) // its request is in flight
		p.Record(waiting)
		synctest.Wait()
		wantShutdownWithin(t, drainable{p}, 0, shutdownLimit)
		close(never)
		synctest.Wait()
	})
}

// A Pipeline reports too, and a refused Event has its reason.
func TestEventThatEventdRefusesIsDroppedWithItsReason(t *testing.T) {
	p, config := reportTo(t, func(next http.Handler) http.Handler { return next })
	pipeline, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	to, err := eventdTarget(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := pipeline.StartRemoteSink(to.remote); err != nil {
		t.Fatal(err)
	}
	var settled []occurrence.Settlement
	for _, namespace := range []string{"ns", "Not valid"} {
		event := &corev1.Event{}
		event.Namespace, event.InvolvedObject.Namespace = "ns", namespace
		pipeline.Record(&occurrence.Occurrence{Event: event, Weight: 2, Settled: func(s occurrence.Settlement) { settled = append(settled, s) }})
	}
	pipeline.Flush(t.Context())
	if err := pipeline.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if len(settled) != 2 || settled[0].Outcome != occurrence.Acknowledged || settled[1].Reason != occurrence.Invalid || settled[1].Err == nil {
		t.Errorf("%+v", settled)
	}
	if n := counted(p); n != 2 {
		t.Errorf("eventd has counted %d", n)
	}
}

// A broadcaster of tools/events reports in its own API until its context ends, and its trail is told what becomes of it.
func TestEventsBroadcasterReportsToEventd(t *testing.T) {
	p, config := reportTo(t, func(next http.Handler) http.Handler { return next })
	told := newModelTrail(t)
	b := NewEventsBroadcaster(nil, with(func(o *Options) { o.Trail = told }))
	r := b.NewRecorder(scheme.Scheme, "example.com/tester")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		if err := b.StartRecordingToEventd(ctx, config); err != nil {
			t.Fatal(err)
		}
		if b.StartRecordingToEventd(t.Context(), config) == nil {
			t.Error("it reports twice")
		}
		r.Eventf(podIn("ns", "web"), nil, corev1.EventTypeNormal, "Tested", "Testing", "")
		cancel()
	}
	if err := b.ShutdownWithContext(t.Context()); err != nil {
		t.Error(err)
	}
	if got := p.Occurrences(); len(got) != 2 || got[0].API != occurrence.EventsV1 {
		t.Errorf("%+v", got)
	}
	steps, _, _ := told.Why(trail.Query{Object: trail.Object{Name: "web"}})
	if recorded, settled := settledOf(steps); recorded != 2 || settled["acknowledged/"] != 2 {
		t.Errorf("the trail has %d recorded, settled %v", recorded, settled)
	}
}

func onlyWriter(t *testing.T, b *RecordBroadcaster) *writer {
	t.Helper()
	b.stages.mu.Lock()
	defer b.stages.mu.Unlock()
	for w := range b.stages.writers {
		return w
	}
	t.Fatal("there is no writer")
	return nil
}

// The defaults state what a broadcaster takes while eventd is away, whatever is recorded.
func TestBroadcasterTakesAtMost16MiBWhileEventdIsAway(t *testing.T) {
	const limit = 16 << 20
	long := strings.Repeat("x", 16_000)
	for name, message := range map[string]func(i int) string{
		"short messages": func(int) string { return "x" },
		"long messages":  func(i int) string { return fmt.Sprint(i, long) },
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(nil)
			s.Close()
			b := NewRecordBroadcaster(with(func(o *Options) { o.DrainTimeout = time.Millisecond }))
			b.StartRecordingToEventd(&rest.Config{Host: s.URL})
			r := b.NewRecorder(scheme.Scheme, source)
			for i := range 10_000 {
				r.Event(podIn(fmt.Sprint("ns-", i%50), fmt.Sprint("web-6d4cf56db6-", i)), "Warning", "FailedScheduling", message(i))
				if i%1000 == 999 {
					await.Until(t, "the queue is empty", func() bool { return b.queued() == 0 })
				}
			}
			if totals := ledgers(b)[0]; totals.Dropped[occurrence.PendingFull] == 0 || totals.Dropped[occurrence.QueueFull] != 0 {
				t.Fatalf("dropped %v", totals.Dropped)
			}
			full := heapBytes()
			b.Shutdown()
			b = nil
			var took int64
			await.Until(t, "more than a quarter of the limit was taken, and is released", func() bool {
				took = full - heapBytes()
				return took > limit/4
			})
			if t.Logf("%d KiB", took>>10); took > limit {
				t.Errorf("%d KiB, want at most %d", took>>10, limit>>10)
			}
		})
	}
}
