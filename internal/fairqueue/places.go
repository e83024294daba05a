package fairqueue

import (
	"context"
	"sync"

	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"

	"github.com/eventd/eventd/internal/shares"
)

// places are those that each of some flows has. Make them with newPlaces. They are safe for use by many goroutines.
type places struct {
	size    int
	waiting fcmetrics.Gauge

	mu sync.Mutex
	of map[shares.Flow]*place // of flows that have a place or wait for one
}

type place struct {
	taken chan struct{} // has a value for each that is taken
	refs  int           // who has one or waits for one
}

// newPlaces returns size places for each flow. waiting is how many wait.
func newPlaces(size int, waiting fcmetrics.Gauge) *places {
	return &places{size: size, waiting: waiting, of: make(map[shares.Flow]*place)}
}

// enter waits for a place of a flow. It returns false if ctx ends first. leave must be called once in either case.
func (p *places) enter(ctx context.Context, f shares.Flow) (leave func(), ok bool) {
	p.mu.Lock()
	own := p.of[f]
	if own == nil {
		own = &place{taken: make(chan struct{}, p.size)}
		p.of[f] = own
	}
	own.refs++
	p.mu.Unlock()
	entered := acquire(ctx, own.taken, p.waiting)
	return func() {
		if entered {
			<-own.taken
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if own.refs--; own.refs == 0 {
			delete(p.of, f)
		}
	}, entered
}
