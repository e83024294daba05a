package sink

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What is said of a namespace through one API is no longer so when the other
// one writes there.
func TestNamespaceThatIsMadeHasItsRoomThroughEitherAPI(t *testing.T) {
	var mu sync.Mutex
	made, inFlight, most := false, 0, 0
	c := byNamespace{"new": func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !made {
			return missing("new")
		}
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		inFlight--
		return nil
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait()
		b.recordLater(1, time.Hour, inNamespace("new")) // so that the namespace has something to do
		mu.Lock()
		made = true
		mu.Unlock()
		const series = 100
		for i := range series {
			b.record(i, inNamespace("new"), newStyle)
		}
		pass(time.Minute)
		if got := b.ledger.Totals().Written(); got != series || most == 1 {
			t.Errorf("%d are written, %d at once", got, most)
		}
	})
}
