package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// stuck is a client whose requests ignore their contexts, and return when they are
// released, with an answer of success.
type stuck struct {
	released chan struct{}
	hangs    func(event *corev1.Event) bool // nil: all creates do

	mu       sync.Mutex
	inFlight map[string]int // by name
	most     int            // at once
	twice    bool           // for one Event
}

func newStuck(hangs func(*corev1.Event) bool) *stuck {
	return &stuck{released: make(chan struct{}), hangs: hangs, inFlight: make(map[string]int)}
}

func (d *stuck) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	if d.hangs == nil || d.hangs(event) {
		d.begin(event.Name)
		<-d.released
		d.end(event.Name)
	}
	event = event.DeepCopy()
	event.UID, event.ResourceVersion = "uid", "1"
	return event, nil
}

func (d *stuck) Patch(context.Context, occurrence.API, string, string, []byte) (*corev1.Event, error) {
	return nil, errors.New("connection reset by peer")
}

func (d *stuck) begin(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight[name]++
	d.twice = d.twice || d.inFlight[name] > 1
	d.most = max(d.most, len(d.inFlight))
}

func (d *stuck) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inFlight[name]--; d.inFlight[name] == 0 {
		delete(d.inFlight, name)
	}
}

// withStuck runs a sink in front of it, and releases the requests in the end.
func withStuck(t *testing.T, d *stuck, change func(*Options), test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		d.released = make(chan struct{}) // of the bubble
		o := unlimited()
		if change != nil {
			change(&o)
		}
		b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
		var err error
		if b.Sink, err = New(t.Context(), d, b.ledger, o); err != nil {
			t.Fatal(err)
		}
		test(t, b)
		b.closeWithin(time.Second)
		before := b.ledger.Totals()
		close(d.released)
		synctest.Wait()
		if after := b.ledger.Totals(); after.Settled() != before.Settled() || after.Written() != before.Written() {
			t.Errorf("settled %v, and %v after the requests have returned", before.Outcomes, after.Outcomes)
		}
		if n := b.abandonedCount(); n != 0 || len(b.requests.abandonedIn)+len(b.requests.inFlight) != 0 {
			t.Errorf("%d requests are abandoned after they have returned", n)
		}
	})
}

// closeWithin closes the sink when there is a time left, and checks that it takes
// that and no more, and that everything is accounted for.
func (b *bench) closeWithin(limit time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), limit)
	defer cancel()
	began := time.Now()
	b.Close(ctx)
	if took := time.Since(began); took > limit+2*grace.Period {
		b.t.Errorf("closed after %v, of %v", took, limit)
	}
	if got := b.ledger.Totals(); got.Pending() != 0 || b.holds() != (totals{}) {
		b.t.Errorf("recorded %d, settled %v, held %+v", got.Recorded, got.Outcomes, b.total)
	}
}

func TestCloseDoesNotWaitForRequestsThatNeverReturn(t *testing.T) {
	withStuck(t, newStuck(nil), func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) { // three for one namespace
		for i := range 10 {
			b.record(i)
		}
		synctest.Wait()
		b.closeWithin(time.Second)
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Uncertain] != 3 || got.Dropped[occurrence.Shutdown] != 7 {
			t.Errorf("settled as %v, dropped %v", got.Outcomes, got.Dropped)
		}
		if n := b.abandonedCount(); n != 3 {
			t.Errorf("%d requests are abandoned", n)
		}
	})
}

// A request that never returns takes neither a worker nor a place from others, and
// there is none beside it for its Event.
func TestRequestThatNeverReturnsIsLeftAlone(t *testing.T) {
	d := newStuck(func(e *corev1.Event) bool { return e.InvolvedObject.Name == "pod-0" })
	withStuck(t, d, func(o *Options) { o.Concurrency, o.MinConcurrency = 4, 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		time.Sleep(time.Minute)
		for i := range 20 {
			b.record(0)
			b.record(1 + i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if p := b.Pending(); p.Series != 1 || b.ledger.Totals().Written() != 20 {
			t.Errorf("%+v is pending, settled %v", p, b.ledger.Totals().Outcomes)
		}
		if d.twice || b.abandonedCount() != 1 {
			t.Errorf("two requests at once: %v; abandoned: %d", d.twice, b.abandonedCount())
		}
		if n := testutil.ToFloat64(b.metrics.inFlight); n != 0 {
			t.Errorf("%v requests are in flight", n)
		}
	})
}

func TestEventIsWrittenWhenItsRequestHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newStuck(nil)
		b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
		var err error
		if b.Sink, err = New(t.Context(), d, b.ledger, unlimited()); err != nil {
			t.Fatal(err)
		}
		b.record(0)
		time.Sleep(time.Minute)
		close(d.released)
		synctest.Wait()
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("settled %v", got.Outcomes)
		}
		b.closeWithin(0)
	})
}

// goroutines is how many there are. runtime.NumGoroutine may count one that has ended
// a while ago.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("\n\ngoroutine "))
}

// However many requests hang in one namespace, others go on, and so does the sink
// when there is nothing that does not hang.
func TestAbandonedRequestsAreBoundedForEachNamespaceAndInAll(t *testing.T) {
	const limit = 8
	d := newStuck(func(e *corev1.Event) bool { return e.Namespace != "good" })
	withStuck(t, d, func(o *Options) { o.Concurrency, o.RetryFor, o.RetryMaxDelay = limit, 24*time.Hour, time.Minute }, func(t *testing.T, b *bench) {
		before := goroutines()
		for i := range 100 {
			b.record(i, inNamespace("bad"))
		}
		time.Sleep(10 * time.Minute)
		if n := b.abandonedCount(); n != limit*3/4 {
			t.Errorf("%d of %d are abandoned", n, limit)
		}
		for i := range 50 {
			b.record(i, inNamespace("good"))
		}
		time.Sleep(time.Minute)
		if got := b.ledger.Totals(); got.Written() != 50 {
			t.Errorf("settled %v", got.Outcomes)
		}
		for i := range 100 {
			b.record(i, inNamespace(fmt.Sprint("bad-", i)))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n, more := b.abandonedCount(), goroutines()-before; n != limit || d.most > 2*limit || more > limit {
			t.Errorf("%d are abandoned, %d requests at once, %d goroutines more", n, d.most, more)
		}
	})
}

// While there are as many abandoned requests as there may be, a further one keeps its
// worker, until one of them returns.
func TestRequestIsAbandonedOnceAnotherHasReturned(t *testing.T) {
	released := make(map[string]chan struct{})
	c := byNamespace{}
	for _, name := range []string{"a", "b", "c"} {
		c[name] = func(context.Context) error { <-released[name]; return nil }
	}
	bubble(t, c, func(o *Options) { o.Concurrency, o.MinConcurrency = 2, 2 }, func(t *testing.T, b *bench) {
		for name := range c {
			released[name] = make(chan struct{}) // of the bubble
		}
		b.record(0, inNamespace("a"))
		time.Sleep(5 * time.Second)
		b.record(0, inNamespace("b"))
		synctest.Wait()
		b.record(0, inNamespace("c")) // is asked for when a's is abandoned, and before b's
		time.Sleep(time.Minute)
		if n, busy := b.abandonedCount(), testutil.ToFloat64(b.metrics.inFlight); n != 2 || busy != 1 {
			t.Errorf("%d are abandoned, %v in flight", n, busy)
		}
		close(released["a"])
		time.Sleep(2 * requestGrace)
		if n, busy := b.abandonedCount(), testutil.ToFloat64(b.metrics.inFlight); n != 2 || busy != 0 {
			t.Errorf("after one has returned, %d are abandoned, %v in flight", n, busy)
		}
		close(released["b"])
		close(released["c"])
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Written() != 3 {
			t.Errorf("settled %v", got.Outcomes)
		}
	})
}

// A worker that was between two calls when Close left them alone makes no request any
// more, and nobody waits for what it calls.
func TestWorkerCallsOnItsOwnAfterClose(t *testing.T) {
	bubble(t, scripted(hang), nil, func(t *testing.T, b *bench) {
		w := &worker{sink: b.Sink, ctx: t.Context(), series: newPendingSeries(&counter.Counter{})}
		b.mu.Lock()
		w.add()
		b.abandonAll()
		b.mu.Unlock()
		if _, ok := w.beginRequest(&request{}); ok {
			t.Error("it makes a request")
		}
		waits := true
		w.callExternal(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, waits = b.workers[w]
		})
		if waits {
			t.Error("what it calls is waited for")
		}
	})
}

// What is owed to an Event whose request never returns is given up in the end, as
// what may have been written.
func TestWhatNeverReturnsIsGivenUp(t *testing.T) {
	withStuck(t, newStuck(nil), nil, func(t *testing.T, b *bench) {
		b.record(0)
		time.Sleep(b.options.RetryFor + time.Minute)
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Uncertain] != 1 {
			t.Errorf("settled %v", got.Outcomes)
		}
		b.record(0) // the series is another one now, and its Event is the same
		time.Sleep(time.Minute)
		if b.abandonedCount() != 1 {
			t.Errorf("%d requests are abandoned", b.abandonedCount())
		}
	})
}

// Callbacks and loggers that never return hold up Close no longer than requests,
// and whoever else waits is told.
func TestCloseDoesNotWaitForCallbacksAndLoggersThatNeverReturn(t *testing.T) {
	refuses := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		return nil, errors.New("proxyconnect: no")
	})
	for name, test := range map[string]struct {
		client Client
		waits  bool // a callback never returns
		logs   bool // the logger never does
	}{
		"callback of what is written":  {newStuck(func(*corev1.Event) bool { return false }), true, false},
		"callback of what is given up": {refuses, true, false},
		"logger":                       {refuses, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				ctx := t.Context()
				if test.logs {
					ctx = klog.NewContext(ctx, funcr.New(func(string, string) { <-never }, funcr.Options{}))
				}
				o := unlimited()
				o.RetryFor, o.Registerer = time.Second, prometheus.NewRegistry()
				b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
				var err error
				if b.Sink, err = New(ctx, test.client, b.ledger, o); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					b.record(i, func(o *occurrence.Occurrence) {
						if test.waits {
							o.Settled = func(occurrence.Settlement) { <-never }
						}
					})
				}
				synctest.Wait()
				b.closeWithin(500 * time.Millisecond)
				close(never)
			})
		})
	}
}
