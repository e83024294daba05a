package sink

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// One webhook that does not answer may be asked for several namespaces.
func TestNamespacesThatHangLeaveRoomForOthers(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := byNamespace{}
			for i := range n {
				c[fmt.Sprint("stuck-", i)] = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			}
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				for i := range 500 {
					for k := range n {
						b.record(i, inNamespace(fmt.Sprint("stuck-", k)))
					}
				}
				synctest.Wait()
				b.record(0, inNamespace("other"))
				time.Sleep(time.Second)
				if got := b.ledger.Totals().Written(); got != 1 {
					t.Error("another namespace waits for those that hang")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				b.Close(ctx)
			})
		})
	}
}
