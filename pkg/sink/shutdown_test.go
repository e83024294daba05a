package sink

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

func TestCloseIsBoundedAndSettlesTheRest(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) { // three for one namespace
		for i := range 10 {
			b.record(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		left := b.Close(ctx)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		if left.Series != 10 || left.Occurrences != 10 {
			t.Errorf("left %+v", left)
		}
		b.record(0)
		got := b.ledger.Totals()
		if got.Outcomes[occurrence.Uncertain] != 3 || got.Dropped[occurrence.Shutdown] != 8 || got.Pending() != 0 {
			t.Errorf("settled as %v", got)
		}
		if again := b.Close(t.Context()); again.Series != 0 {
			t.Errorf("closed again: %+v", again)
		}
	})
}

func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		b.record(0)
		start := time.Now()
		var first sync.WaitGroup
		first.Go(func() { b.Close(t.Context()) })
		synctest.Wait()
		b.Close(t.Context())
		if b.ledger.Totals().Pending() != 0 || time.Since(start) < time.Minute {
			t.Errorf("returned after %v with %d pending", time.Since(start), b.ledger.Totals().Pending())
		}
		first.Wait()
	})
}

// Whoever waits for the outcome of what is left at the end is told.
func TestWhoeverWaitsIsToldThatTheSinkIsClosed(t *testing.T) {
	bubble(t, scripted(hang), nil, func(t *testing.T, b *bench) {
		var ends []occurrence.Settlement
		b.recordLater(0, time.Hour, func(o *occurrence.Occurrence) {
			o.Settled = func(s occurrence.Settlement) { ends = append(ends, s) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.Close(ctx)
		if len(ends) != 1 || ends[0].Reason != occurrence.Shutdown {
			t.Errorf("told %+v", ends)
		}
	})
}

// Flush waits for what had been added, not for what others go on adding.
func TestFlushEndsThoughMoreIsAddedAllTheTime(t *testing.T) {
	c := newClocked()
	c.takes = 100 * time.Millisecond
	timed(t, c, nil, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		settled := make(chan struct{})
		b.record(0, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { close(settled) } })
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 1; ctx.Err() == nil; i++ {
				b.record(i % 10)
				time.Sleep(30 * time.Millisecond)
			}
		}()
		b.Flush(ctx)
		<-settled
		if took := time.Since(c.begun); took > time.Minute {
			t.Errorf("it took %v, what had been added %v", took, c.takes)
		}
		cancel()
		<-done
	})
}

func TestFlushWaitsForWhatWasThereAndForNothingElse(t *testing.T) {
	e := newFlushGenerations()
	if before := e.end(); !e.isOver(before) {
		t.Error("there was nothing")
	}
	first := e.enter()
	one := e.end()
	two := e.end()
	later := e.enter()
	if e.isOver(one) || e.isOver(two) || first == later {
		t.Errorf("generations %d and %d of entries %d and %d", one, two, first, later)
	}
	if !e.leave(first) || !e.isOver(one) || !e.isOver(two) {
		t.Error("what came later is waited for")
	}
	three := e.end()
	if e.isOver(three) || !e.leave(later) || !e.isOver(three) {
		t.Error("what is there is not waited for")
	}
}

func TestFlushDoesNotWaitForDueTimes(t *testing.T) {
	c := newClocked()
	c.takes = time.Second
	timed(t, c, nil, func(t *testing.T, b *bench) {
		for i := range 3 {
			b.recordLater(i, time.Hour)
		}
		deferred := 0
		var flushed sync.WaitGroup
		flushed.Go(func() {
			if left := b.Flush(t.Context()); left != (Pending{}) {
				t.Errorf("left %+v", left)
			}
			if took := time.Since(c.begun); took != time.Second {
				t.Errorf("flushed after %v", took)
			}
		})
		synctest.Wait()
		later := func(o *occurrence.Occurrence) { o.Deferred = func() { deferred++ } }
		b.recordLater(0, time.Hour, later) // which goes with the next write of its series
		b.recordLater(3, time.Hour, later)
		flushed.Wait()
		if deferred != 0 {
			t.Errorf("%d were told to wait while everything is written", deferred)
		}
		b.recordLater(4, time.Hour, later)
		if deferred != 1 {
			t.Errorf("%d were told to wait after the flush", deferred)
		}
		s := time.Second
		c.wantWrites(t, 6, 0, 0, 0, 0, s, time.Hour+s)
	})
}

func TestCloseWritesWhatIsDeferred(t *testing.T) {
	c := newClocked()
	timed(t, c, nil, func(t *testing.T, b *bench) {
		for i := range 100 {
			b.recordLater(i%10, time.Hour)
		}
		if left := b.Close(t.Context()); left != (Pending{}) || time.Since(c.begun) != 0 {
			t.Errorf("left %+v after %v", left, time.Since(c.begun))
		}
		if got := c.server.Counted(); got != 100 || len(c.writes) != 10 {
			t.Errorf("counted %d in %d writes", got, len(c.writes))
		}
	})
}

func TestWhatIsDeferredIsDroppedIfItCannotBeWritten(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.Concurrency = 1 }, func(t *testing.T, b *bench) {
		for i := range 10 {
			b.recordLater(i, time.Hour)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if left := b.Close(ctx); left != (Pending{Series: 10, Occurrences: 10}) {
			t.Errorf("left %+v", left)
		}
		if got := b.ledger.Totals(); got.Dropped[occurrence.Shutdown] != 9 || got.Outcomes[occurrence.Uncertain] != 1 {
			t.Errorf("settled as %v", got)
		}
	})
}
