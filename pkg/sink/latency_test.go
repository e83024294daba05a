package sink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// An apiserver that becomes slow with load gets as much as it answers in good
// time, however many namespaces there are.
func TestConcurrencyFollowsTheLatencyInManyNamespaces(t *testing.T) {
	const namespaces, each = 300, 60 * time.Millisecond // 16 at once take nearly a second
	var mu sync.Mutex
	inFlight := 0
	c := byNamespace{}
	for i := range namespaces {
		c[fmt.Sprint("ns-", i)] = func(context.Context) error {
			mu.Lock()
			inFlight++
			takes := time.Duration(inFlight) * each
			mu.Unlock()
			time.Sleep(takes)
			mu.Lock()
			inFlight--
			mu.Unlock()
			return nil
		}
	}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for i := range 30_000 {
			b.record(i, inNamespace(fmt.Sprint("ns-", i%namespaces)))
		}
		pass(5 * time.Minute)
		if limit := b.concurrencyLimit(); limit > 2*16 {
			t.Errorf("%d places, where 16 make answers slow", limit)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}
