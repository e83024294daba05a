package sink

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// stuck is an apiserver whose requests ignore their context if they match.
func stuck(matches func(*call) bool) *fake {
	f := &fake{}
	f.answer = func(ctx context.Context, c *call) error {
		if matches(c) {
			return f.ignoreContext(ctx, c)
		}
		return nil
	}
	return f
}

func everything(*call) bool { return true }

// A request that never returns takes neither a worker nor a slot from others, and
// there is no second one for its Event.
func TestRequestThatNeverReturnsIsLeftAlone(t *testing.T) {
	f := stuck(func(c *call) bool { return c.object == "pod-0" })
	slow := func(o *Options) { o.Concurrency, o.MinConcurrency, o.SlowAnswer = 4, 1, time.Hour }
	bubble(t, f, slow, func(t *testing.T, b *bench) {
		b.record(0)
		time.Sleep(time.Minute)
		for i := range 20 {
			b.record(0)
			b.record(1 + i)
		}
		pass(time.Minute)
		b.wantEnds(ends{written: 20})
		if p := b.Pending(); p.Series != 1 || b.abandonedCount() != 1 {
			t.Errorf("%+v is pending, %d requests are abandoned", p, b.abandonedCount())
		}
		if n := testutil.ToFloat64(b.metrics.inFlight); n != 0 {
			t.Errorf("%v requests are in flight", n)
		}
	})
}

// goroutines is how many there are in the bubble of the caller, and not those that the runtime starts at any time.
// runtime.NumGoroutine may count one that has ended a while ago.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	own := ofBubble.Find(stacks[:runtime.Stack(stacks, false)])
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], own)
}

// ofBubble is in the first line of the stack of a goroutine.
var ofBubble = regexp.MustCompile(`, synctest bubble \d+[],]`)

// However many requests hang in one namespace, others are written. The number of abandoned
// requests is bounded in all.
func TestAbandonedRequestsAreBoundedForEachNamespaceAndInAll(t *testing.T) {
	const limit = 8
	f := stuck(func(c *call) bool { return c.namespace != "good" })
	long := func(o *Options) { o.Concurrency, o.RetryFor, o.RetryMaxDelay = limit, 24*time.Hour, time.Minute }
	bubble(t, f, long, func(t *testing.T, b *bench) {
		before := goroutines()
		for i, want := range []int{limit * 3 / 4, limit - 1} { // a part of what others leave
			b.recordEach(100, inNamespace(fmt.Sprint("bad", i)))
			time.Sleep(10 * time.Minute)
			if n := b.abandonedCount(); n != want {
				t.Errorf("%d of %d are abandoned, want %d", n, limit, want)
			}
		}
		b.recordEach(50, inNamespace("good"))
		time.Sleep(time.Minute)
		b.wantEnds(ends{written: 50})
		for i := range 100 {
			b.record(i, inNamespace(fmt.Sprint("bad-", i)))
		}
		pass(10 * time.Minute)
		if n, more, most := b.abandonedCount(), goroutines()-before, f.load("").most; n != limit || most > 2*limit || more > 2*limit {
			t.Errorf("%d are abandoned, %d requests at once, %d goroutines more", n, most, more)
		}
	})
}

// While as many requests are abandoned as may be, a further one keeps its worker until one
// of them returns.
func TestRequestIsAbandonedOnceAnotherHasReturned(t *testing.T) {
	released := make(map[string]chan struct{})
	waits := func(_ context.Context, c *call) error { <-released[c.namespace]; return nil }
	bubble(t, &fake{answer: waits}, func(o *Options) { o.Concurrency, o.MinConcurrency = 2, 2 }, func(t *testing.T, b *bench) {
		for _, name := range []string{"a", "b", "c"} {
			released[name] = make(chan struct{}) // of the bubble
		}
		want := func(abandoned int, inFlight float64) {
			t.Helper()
			if n, busy := b.abandonedCount(), testutil.ToFloat64(b.metrics.inFlight); n != abandoned || busy != inFlight {
				t.Errorf("%d are abandoned and %v in flight, want %d and %v", n, busy, abandoned, inFlight)
			}
		}
		b.record(0, inNamespace("a"))
		time.Sleep(5 * time.Second)
		b.record(0, inNamespace("b"))
		synctest.Wait()
		b.record(0, inNamespace("c")) // is sent when a's is abandoned, and before b's
		time.Sleep(time.Minute)
		want(2, 1)
		close(released["a"])
		time.Sleep(2 * requestGrace)
		want(2, 0)
		close(released["b"])
		close(released["c"])
		b.flush() // the retry of a's may have been refused as c's was abandoned
		b.wantEnds(ends{written: 3})
	})
}

// A worker that is between two calls when Close abandons the others sends no request any
// more, and Close does not wait for what it calls.
func TestWorkerBetweenTwoCallsIsAbandonedInTheNext(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		w := &worker{sink: b.Sink, ctx: t.Context(), series: newPendingSeries(&counter.Counter{})}
		b.mu.Lock()
		w.add()
		b.mu.Unlock()
		w.callExternal(func() {})
		b.mu.Lock()
		b.abandonAll()
		b.mu.Unlock()
		if w.abandoned {
			t.Error("it is abandoned while nothing external runs")
		}
		if _, ok := w.beginRequest(&request{}); ok {
			t.Error("it sends a request")
		}
		waits := true
		if w.callExternal(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, waits = b.workers[w]
		}) {
			t.Error("it goes on after what it calls")
		}
		if waits {
			t.Error("Close waits for what it calls")
		}
		if w.callExternal(func() { t.Error("it calls more, though it is abandoned") }) {
			t.Error("it goes on, though it is abandoned")
		}
	})
}

// The logger may hang as well when a request is abandoned.
func TestAbandonedRequestIsUncertainWhileTheLoggerHangs(t *testing.T) {
	f := stuck(everything)
	f.log = func(string) { <-f.released }
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0)
		pass(b.options.RequestTimeout + requestGrace)
		b.closeWithin(500 * time.Millisecond)
		b.wantEnds(ends{occurrence.Uncertain: 1})
	})
}

// The timer of a request may fire as it returns, and while the worker sends the next one.
func TestRequestThatHasReturnedIsNotAbandoned(t *testing.T) {
	bubble(t, &fake{takes: time.Second}, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		for w := range b.workers {
			if w.inCall {
				w.began = w.began.Add(-time.Hour)
				w.onLate(&request{Request: &counter.Request{}}) // the one before
				w.inCall = false
				w.onLate(w.request)
				w.inCall = true
			}
		}
		if n := b.abandonedCount(); n != 0 {
			t.Errorf("%d requests are abandoned", n)
		}
	})
}

// An occurrence of an Event whose request never returns is dropped in the end, as one that
// may have been written.
func TestOccurrenceWhoseRequestNeverReturnsIsUncertain(t *testing.T) {
	f := stuck(everything)
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0)
		time.Sleep(b.options.RetryFor + time.Minute)
		b.wantEnds(ends{occurrence.Uncertain: 1})
		b.record(0) // the series is a new one, and its Event is the same
		time.Sleep(time.Minute)
		if n := b.abandonedCount(); n != 1 {
			t.Errorf("%d requests are abandoned", n)
		}
		b.flush()
		f.release() // the request returns when nothing is pending
		synctest.Wait()
		b.record(0)
		b.flush()
		b.wantEnds(ends{occurrence.Uncertain: 1, occurrence.RetriesExhausted: 1, written: 1})
	})
}

func TestCloseDoesNotWaitForCallbacksAndLoggersThatNeverReturn(t *testing.T) {
	never := func(f *fake) change { return onSettled(func(occurrence.Settlement) { <-f.released }) }
	without := func(*fake) change { return normal }
	logs := &fake{answer: fail(errUnreachable)}
	logs.log = func(string) { <-logs.released }
	for name, test := range map[string]struct {
		f        *fake
		callback func(*fake) change
	}{
		"callback of what is written": {&fake{}, never},
		"callback of what is dropped": {&fake{answer: fail(errUnreachable)}, never},
		"logger":                      {logs, without},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, test.f, nil, func(t *testing.T, b *bench) {
				b.recordEach(3, test.callback(test.f))
				synctest.Wait()
				b.closeWithin(500 * time.Millisecond)
			})
		})
	}
}
