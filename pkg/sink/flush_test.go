package sink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/occurrence"
)

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
