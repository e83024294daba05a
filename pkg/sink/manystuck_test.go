package sink

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/occurrence"
)

// One webhook that does not answer may be asked for a good many namespaces, in
// which things begin to happen one after the other.
func TestManyNamespacesThatHangDelayNoOther(t *testing.T) {
	const stuck = 40
	c := byNamespace{}
	for i := range stuck {
		c[fmt.Sprint("stuck-", i)] = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for n := range stuck {
			for i := range 100 {
				b.record(i, inNamespace(fmt.Sprint("stuck-", n)))
			}
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Minute)
		var worst time.Duration
		for i := range 20 {
			start := time.Now()
			settled := make(chan struct{})
			b.record(i, inNamespace("other"), func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { close(settled) } })
			<-settled
			worst = max(worst, time.Since(start))
			time.Sleep(time.Second)
		}
		if worst > time.Second {
			t.Errorf("another namespace waits for up to %v, with %d places in all", worst, b.concurrencyLimit())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}
