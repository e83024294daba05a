package sink

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Of what is left, requests in flight may have taken effect, and the rest is dropped.
func TestCloseIsBoundedAndSettlesTheRest(t *testing.T) {
	never := &fake{}
	never.answer = never.ignoreContext
	for name, test := range map[string]struct {
		f     *fake
		delay time.Duration
		late  time.Duration
	}{
		"requests that hang":         {&fake{answer: hang}, 0, 0},
		"deferred writes":            {&fake{answer: hang}, time.Hour, 0},
		"requests that never return": {never, 0, grace.Period},
	} {
		t.Run(name, func(t *testing.T) {
			// Three of four requests may be in one namespace.
			bubble(t, test.f, func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) {
				var last occurrence.Settlement
				for i := range 10 {
					b.recordLater(i, test.delay, onSettled(func(s occurrence.Settlement) {
						if s.Outcome == occurrence.Dropped {
							last = s
						}
					}))
				}
				began := time.Now()
				if left := b.closeWithin(2 * time.Second); left != (Pending{Series: 10, Occurrences: 10}) {
					t.Errorf("left %+v", left)
				}
				if took := time.Since(began); took != 2*time.Second+test.late {
					t.Errorf("closed after %v", took)
				}
				b.record(0)
				b.wantEnds(ends{occurrence.Uncertain: 3, occurrence.Shutdown: 8})
				if last.Reason != occurrence.Shutdown {
					t.Errorf("a callback got %+v", last)
				}
				if again := b.Close(t.Context()); again != (Pending{}) {
					t.Errorf("closed again: %+v", again)
				}
			})
		})
	}
}

func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, &fake{answer: hang}, func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		b.record(0)
		began := time.Now()
		var first sync.WaitGroup
		first.Go(func() { b.Close(t.Context()) })
		synctest.Wait()
		b.Close(t.Context())
		if n := b.ledger.Totals().Pending(); n != 0 || time.Since(began) < time.Minute {
			t.Errorf("returned after %v with %d pending", time.Since(began), n)
		}
		first.Wait()
	})
}

// Flush waits for what was added before it, not for what is added later.
func TestFlushEndsThoughMoreIsAddedAllTheTime(t *testing.T) {
	bubble(t, &fake{takes: 100 * time.Millisecond}, nil, func(t *testing.T, b *bench) {
		began, settled := time.Now(), false
		b.record(0, onSettled(func(occurrence.Settlement) { settled = true }))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		var recorder sync.WaitGroup
		recorder.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				b.record(i % 10)
				time.Sleep(30 * time.Millisecond)
			}
		})
		b.Flush(ctx)
		synctest.Wait() // callbacks may run after the flush
		if took := time.Since(began); took > time.Minute || !settled {
			t.Errorf("it took %v, settled: %v", took, settled)
		}
		cancel()
		recorder.Wait()
	})
}

func TestFlushWaitsForWhatWasThereAndForNothingElse(t *testing.T) {
	e := newFlushGenerations()
	if before := e.end(); !e.isOver(before) {
		t.Error("an empty generation is waited for")
	}
	first := e.enter()
	one, two := e.end(), e.end()
	later := e.enter()
	if e.isOver(one) || e.isOver(two) || first == later {
		t.Errorf("generations %d and %d of entries %d and %d", one, two, first, later)
	}
	if !e.leave(first) || !e.isOver(one) || !e.isOver(two) {
		t.Error("a later entry is waited for")
	}
	three := e.end()
	if e.isOver(three) || !e.leave(later) || !e.isOver(three) {
		t.Error("an entry is not waited for")
	}
}

func TestFlushDoesNotWaitForDueTimes(t *testing.T) {
	f := &fake{takes: time.Second}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		for i := range 3 {
			b.recordLater(i, time.Hour)
		}
		deferred := 0
		var flushed sync.WaitGroup
		flushed.Go(func() {
			b.flush()
			if took := time.Since(f.began); took != time.Second {
				t.Errorf("flushed after %v", took)
			}
		})
		synctest.Wait()
		later := func(o *occurrence.Occurrence) { o.Deferred = func() { deferred++ } }
		b.recordLater(0, time.Hour, later) // part of the next write of its series
		b.recordLater(3, time.Hour, later)
		flushed.Wait()
		if deferred != 0 {
			t.Errorf("%d were deferred during the flush", deferred)
		}
		b.recordLater(4, time.Hour, later)
		if deferred != 1 {
			t.Errorf("%d were deferred after the flush", deferred)
		}
		s := time.Second
		f.wantWrites(t, 6, 0, 0, 0, 0, s, time.Hour+s)
	})
}

func TestCloseWritesWhatIsDeferred(t *testing.T) {
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		for i := range 100 {
			b.recordLater(i%10, time.Hour)
		}
		if left := b.Close(t.Context()); left != (Pending{}) || time.Since(f.began) != 0 {
			t.Errorf("left %+v after %v", left, time.Since(f.began))
		}
		f.wantStored(t, 10, 100)
		if n := len(f.writes); n != 10 {
			t.Errorf("%d writes", n)
		}
	})
}
