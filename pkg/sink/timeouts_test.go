package sink

import (
	"context"
	"sync"
	"testing"
	"time"
)

// No answer is held against a namespace, however soon it is no longer waited for.
func TestTimeOutsAreHeldAgainstTheirNamespace(t *testing.T) {
	var mu sync.Mutex
	inFlight := 0
	c := byNamespace{"stuck": func(ctx context.Context) error {
		mu.Lock()
		inFlight++
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		inFlight--
		mu.Unlock()
		return ctx.Err()
	}}
	short := func(o *Options) {
		o.Concurrency, o.RequestTimeout = 20, DefaultOptions().SlowAnswer-100*time.Millisecond
	}
	bubble(t, c, short, func(t *testing.T, b *bench) {
		for i := range 500 {
			b.record(i, inNamespace("stuck"))
		}
		pass(20 * time.Second)
		mu.Lock()
		if inFlight != 1 {
			t.Errorf("%d requests hang after 20 time-outs", inFlight)
		}
		mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}
