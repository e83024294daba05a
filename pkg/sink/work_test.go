package sink

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// workerCount returns the number of workers.
func (b *bench) workerCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.workers)
}

// A sink without work has no goroutines, before a burst and after it. Nothing waits for a worker
// that is free.
func TestWorkersAreThereWhileThereIsWork(t *testing.T) {
	f := &fake{takes: time.Second}
	bubble(t, f, func(o *Options) { o.Concurrency = 16 }, func(t *testing.T, b *bench) {
		want := func(when string, workers int) {
			t.Helper()
			synctest.Wait()
			if n := b.workerCount(); n != workers {
				t.Errorf("%s: %d workers, want %d", when, n, workers)
			}
		}
		want("at the start", 0)
		for round := range 3 {
			b.record(round, inNamespace("one"))
			want("with one series to write", 1)
			for i := range 200 {
				b.record(i, inNamespace(fmt.Sprint("many", i)))
			}
			want("in a burst", 16)
			pass(time.Minute)
			want("after the burst", 0)
		}
		b.recordLater(1000, time.Hour)
		want("with a deferred write", 0)
		pass(time.Hour)
		want("when that is due", 1)
		pass(time.Minute)
		b.wantEnds(ends{written: 3*201 + 1})
	})
}

// An occurrence that is added after a worker has found nothing to write, and before it has ended,
// starts another one.
func TestOccurrenceIsWrittenThoughTheLastWorkerEnds(t *testing.T) {
	bubble(t, &fake{}, one, func(t *testing.T, b *bench) {
		w := &worker{sink: b.Sink, ctx: t.Context()}
		b.mu.Lock()
		w.add()
		b.mu.Unlock()
		if _, ok := w.dequeue(); ok {
			t.Fatal("there is something to write")
		}
		b.record(0)
		pass(time.Minute)
		b.wantEnds(ends{written: 1})
	})
}

// A client that ends the goroutine of the only worker does not delay other series.
func TestWorkerThatIsEndedByTheClientIsReplaced(t *testing.T) {
	f := &fake{answer: func(_ context.Context, c *call) error {
		if c.number == 1 {
			time.Sleep(time.Second)
			runtime.Goexit()
		}
		return nil
	}}
	slow := func(o *Options) { one(o); o.RetryBaseDelay, o.RetryMaxDelay = time.Hour, time.Hour }
	bubble(t, f, slow, func(t *testing.T, b *bench) {
		b.recordEach(2)
		pass(time.Minute)
		b.wantEnds(ends{written: 1})
	})
}

// Callbacks that never return keep their workers, even if the clients end the goroutines of others.
func TestCallbacksThatHangKeepNoMoreThanTheirWorkers(t *testing.T) {
	f := &fake{answer: func(context.Context, *call) error { runtime.Goexit(); return nil }}
	bubble(t, f, func(o *Options) { o.Concurrency, o.RetryFor = 4, time.Minute }, func(t *testing.T, b *bench) {
		for i := range 50 {
			b.record(i, inNamespace(fmt.Sprint("ns", i)), onSettled(func(occurrence.Settlement) { <-f.released }))
		}
		pass(time.Hour)
		if n := b.workerCount(); n != 4 {
			t.Errorf("%d workers, want 4", n)
		}
	})
}

func one(o *Options) { o.Concurrency, o.MinConcurrency = 1, 1 }
