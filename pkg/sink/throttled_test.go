package sink

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The admission plugin EventRateLimit answers 429 for one namespace, which says
// nothing of the others.
func TestNamespaceWithARateLimitSlowsNoOther(t *testing.T) {
	c := byNamespace{
		"limited": func(context.Context) error {
			return apierrors.NewTooManyRequestsError("limit reached on type Namespace")
		},
		"other": func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil },
	}
	took := map[int]time.Duration{}
	for _, limited := range []int{0, 500} {
		bubble(t, c, nil, func(t *testing.T, b *bench) {
			for i := range limited {
				b.record(i, inNamespace("limited"))
			}
			time.Sleep(10 * time.Second)
			start := time.Now()
			for i := range 5000 {
				b.record(i, inNamespace("other"))
			}
			for b.ledger.Totals().Written() < 5000 {
				time.Sleep(100 * time.Millisecond)
			}
			took[limited] = time.Since(start)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b.Close(ctx)
		})
	}
	if took[500] > 2*took[0] {
		t.Errorf("it took %v, and %v beside a namespace with a rate limit", took[0], took[500])
	}
}
