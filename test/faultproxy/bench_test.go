package faultproxy

import (
	"fmt"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// What the proxy itself costs: a write through it beside the same write without
// it, from 64 clients at once, with the backend in the same process.
func BenchmarkPassing(b *testing.B) {
	backend := newFake(b)
	p := New(b, backend.config, 1)
	for name, config := range map[string]*rest.Config{"direct": backend.config, "proxy": p.Config()} {
		b.Run(name, func(b *testing.B) {
			h, err := rest.HTTPClientFor(config)
			if err != nil {
				b.Fatal(err)
			}
			c := &client{h, config.Host}
			var n atomic.Int64
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if g := c.create(b.Context(), "ns", fmt.Sprint(n.Add(1))); g.code != 201 {
						b.Error(g)
					}
				}
			})
		})
	}
}
