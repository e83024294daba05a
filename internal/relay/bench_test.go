package relay_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// What it costs to forward a request to a leader that answers at once.
func BenchmarkForward(b *testing.B) {
	_, other, _ := pair(b, options{}, options{})
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if a := other.Post(b, classic(fmt.Sprint("a", n.Add(1)), 1)); a.Code != http.StatusCreated {
				b.Errorf("%d: %s", a.Code, a.Body)
			}
		}
	})
}
