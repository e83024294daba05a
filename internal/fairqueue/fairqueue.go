// Package fairqueue limits how much is done at once, fairly between tenants.
package fairqueue

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
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
	// userLength is how many requests of one user of a tenant are in the queues of the tenant. The others of the user
	// wait in front of them, so that those of other users of the tenant do not wait behind all of these.
	userLength = HandSize
)

// Seats limit how many requests are handled at once. Requests that wait for a seat
// are in the queues of their flow. Flows get seats in proportion to the time that their
// requests have had one (k8s.io/apiserver, fairqueuing/queueset). Make them with New. They are
// safe for use by many goroutines, and need no stop.
//
// Acquire takes a free seat without the queues while nobody is in them: there is nobody to be fair to, and
// the queues take a goroutine for each seat. So whoever leaves the queues has the next seat that is free, and
// waits for one if those without the queues have all of them.
type Seats struct {
	set     fq.QueueSet
	seed    maphash.Seed  // random, so that nobody can choose the queues of others
	taken   chan struct{} // has a value for each seat that is taken
	release func()        // is free, made once
	queued  atomic.Int64  // requests in the queues or in front of them, or that have left them without a seat
	waiting fcmetrics.Gauge

	users *places // in the queues
}

// New returns free seats. A queue holds up to queueLength requests. waiting, if not nil, is how many wait.
func New(name string, count, queueLength int, waiting fcmetrics.Gauge) (*Seats, error) {
	if waiting == nil {
		waiting = noGauge()
	}
	none := ratioedGauge{noGauge()}
	completer, err := queueset.NewQueueSetFactory(eventclock.Real{}).BeginConstruction(
		fq.QueuingConfig{Name: name, DesiredNumQueues: seatQueues, HandSize: HandSize, QueueLengthLimit: queueLength},
		fcmetrics.RatioedGaugePair{RequestsWaiting: ratioedGauge{waiting}, RequestsExecuting: none}, none, none)
	if err != nil {
		return nil, err
	}
	dispatching := fq.DispatchingConfig{ConcurrencyLimit: count, ConcurrencyDenominator: count}
	s := &Seats{
		set: completer.Complete(dispatching), seed: maphash.MakeSeed(),
		taken: make(chan struct{}, count), waiting: waiting, users: newPlaces(userLength, waiting),
	}
	s.release = s.free
	return s, nil
}

// Run waits for a seat and calls execute with it. It returns false, and does not call
// execute, if the queues are full or ctx ends while it waits. A seat that is free is taken even if ctx has ended.
func (s *Seats) Run(ctx context.Context, f shares.Flow, execute func()) bool {
	s.queued.Add(1)
	leave, entered := func() {}, true
	if f.User != "" {
		leave, entered = s.users.enter(ctx, shares.Flow{Tenant: f.Tenant, User: f.User})
	}
	left := sync.OnceFunc(func() {
		leave()
		s.queued.Add(-1)
	})
	defer left()
	if !entered {
		return false
	}
	request, _ := s.set.StartRequest(ctx, &fcrequest.WorkEstimate{InitialSeats: 1}, s.hash(f), "", "", nil, nil, nil)
	if request == nil {
		return false
	}
	executed := false
	request.Finish(func() {
		if !s.take(ctx) {
			return
		}
		defer s.free()
		left()
		executed = true
		execute()
	})
	return executed
}

// take waits for a seat that is taken without the queues. It returns false if ctx ends first.
func (s *Seats) take(ctx context.Context) bool { return acquire(ctx, s.taken, s.waiting) }

// acquire sends a value on a channel, and counts as waiting meanwhile. It returns false if ctx ends first.
func acquire(ctx context.Context, taken chan<- struct{}, waiting fcmetrics.Gauge) bool {
	if tryAcquire(taken) {
		return true
	}
	waiting.Inc()
	defer waiting.Dec()
	select {
	case taken <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func tryAcquire(taken chan<- struct{}) bool {
	select {
	case taken <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Seats) free() { <-s.taken }

// TryAcquire is Acquire without waiting. It fails while somebody waits.
func (s *Seats) TryAcquire() (release func(), ok bool) {
	if s.queued.Load() != 0 || !tryAcquire(s.taken) {
		return nil, false
	}
	return s.release, true
}

// Acquire waits for a seat, and has it until release is called, once. It returns false when Run does.
// The queue set frees a seat when a function returns, so a goroutine waits in that
// function for release.
func (s *Seats) Acquire(ctx context.Context, f shares.Flow) (release func(), ok bool) {
	if release, ok := s.TryAcquire(); ok {
		return release, true
	}
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
		return func() {
			close(released)
			<-ended // so that no request has its seat after its response
		}, true
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

// noGauge returns a gauge that nobody reads.
func noGauge() fcmetrics.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{}) }

// ratioedGauge is for the metrics of a queue set.
type ratioedGauge struct{ fcmetrics.Gauge }

func (ratioedGauge) SetDenominator(float64) {}
