// Package fairqueue limits how much is done at once, fairly between tenants.
package fairqueue

import (
	"context"
	"hash/maphash"
	"sync"

	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/eventd/eventd/internal/shares"
)

const (
	// seatQueues and HandSize are those of the shuffle sharding of API Priority and
	// Fairness: a flow has HandSize queues, and its requests wait in the shortest one.
	// The probability that two flows have the same queues is 1 in 635,376.
	seatQueues = 64
	HandSize   = 4
	// namespaceFlows is the number of flows of one tenant, to which its namespaces are
	// hashed. With one flow for each namespace, a tenant that may write everywhere
	// would fill every queue.
	namespaceFlows = 4
)

// Seats limit how many requests are handled at once. Requests that wait for a seat
// are in the queues of their flow. Flows get seats in proportion to the time that their
// requests have had one (k8s.io/apiserver, fairqueuing/queueset). Make them with New. They are
// safe for use by many goroutines, and need no stop.
type Seats struct {
	set  fq.QueueSet
	seed maphash.Seed // random, so that nobody can choose the queues of others
}

// New returns free seats. A queue holds up to queueLength requests. waiting, if not nil, is how many wait.
func New(name string, count, queueLength int, waiting fcmetrics.Gauge) (*Seats, error) {
	none := noGauge{}
	completer, err := queueset.NewQueueSetFactory(eventclock.Real{}).BeginConstruction(
		fq.QueuingConfig{Name: name, DesiredNumQueues: seatQueues, HandSize: HandSize, QueueLengthLimit: queueLength},
		fcmetrics.RatioedGaugePair{RequestsWaiting: ratioed(waiting), RequestsExecuting: none}, none, none)
	if err != nil {
		return nil, err
	}
	dispatching := fq.DispatchingConfig{ConcurrencyLimit: count, ConcurrencyDenominator: count}
	return &Seats{set: completer.Complete(dispatching), seed: maphash.MakeSeed()}, nil
}

// Run waits for a seat and calls execute with it. It returns false, and does not call
// execute, if the queues are full or ctx ends first.
func (s *Seats) Run(ctx context.Context, f shares.Flow, execute func()) bool {
	request, _ := s.set.StartRequest(ctx, &fcrequest.WorkEstimate{InitialSeats: 1}, s.hash(f), "", "", nil, nil, nil)
	if request == nil {
		return false
	}
	executed := false
	request.Finish(func() {
		executed = true
		execute()
	})
	return executed
}

// Acquire waits for a seat, until release is called. It returns false when Run does.
// The queue set frees a seat when a function returns, so a goroutine waits in that
// function for release.
func (s *Seats) Acquire(ctx context.Context, f shares.Flow) (release func(), ok bool) {
	acquired, released := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, f, func() {
			close(acquired)
			<-released
		})
	}()
	select {
	case <-acquired:
		return sync.OnceFunc(func() {
			close(released)
			<-ended // so that no request has its seat after its response
		}), true
	case <-ended:
		return nil, false
	}
}

// hash is the hash of a flow for the queue set.
func (s *Seats) hash(f shares.Flow) uint64 {
	part := maphash.String(s.seed, f.Namespace) % namespaceFlows
	return maphash.Comparable(s.seed, struct {
		tenant string
		part   uint64
	}{f.Tenant, part})
}

// noGauge and ratioedGauge are for the metrics of a queue set.
type noGauge struct{}

func (noGauge) Set(float64)            {}
func (noGauge) Inc()                   {}
func (noGauge) Dec()                   {}
func (noGauge) Add(float64)            {}
func (noGauge) SetToCurrentTime()      {}
func (noGauge) SetDenominator(float64) {}

type ratioedGauge struct{ fcmetrics.Gauge }

func (ratioedGauge) SetDenominator(float64) {}

func ratioed(g fcmetrics.Gauge) fcmetrics.RatioedGauge {
	if g == nil {
		return noGauge{}
	}
	return ratioedGauge{g}
}
