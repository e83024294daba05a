package sink

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that a namespace is missing says nothing of what happened while it
// was under way: the namespace may have been made before that.
func TestAnswerHoldsForWhatWasThereWhenItWasAskedFor(t *testing.T) {
	var made atomic.Bool
	var takes atomic.Int64
	c := byNamespace{"new": func(context.Context) error {
		was := made.Load()
		time.Sleep(time.Duration(takes.Load()))
		if was {
			return nil
		}
		return missing("new")
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait()
		takes.Store(int64(200 * time.Millisecond))
		b.record(1, inNamespace("new")) // asks as soon as the answer to the first is old
		pass(DefaultOptions().NamespaceRefusedFor + 100*time.Millisecond)
		made.Store(true)
		b.record(2, inNamespace("new"))
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
		}
	})
}
