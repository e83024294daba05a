package intake

import (
	"context"
	"hash/maphash"
	"sync"

	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

const (
	// seatQueues and handSize are those of the shuffle sharding of API Priority and
	// Fairness: a flow has handSize queues, and its requests wait in the shortest one.
	// The probability that two flows have the same queues is 1 in 635,376.
	seatQueues = 64
	handSize   = 4
	// namespaceFlows is the number of flows of one tenant, to which its namespaces are
	// hashed. With one flow for each namespace, a tenant that may write everywhere
	// would fill every queue.
	namespaceFlows = 4
)

// seats limits how many requests are handled at once. Requests that wait for a seat
// are in the queues of their flow. Flows get seats in proportion to the time that their
// requests have had one (k8s.io/apiserver, fairqueuing/queueset). It is safe for use by
// many goroutines.
type seats struct {
	set  fq.QueueSet
	seed maphash.Seed // random, so that nobody can choose the queues of others
}

// newSeats returns free seats. A queue holds up to queueLength requests.
func newSeats(name string, count, queueLength int, waiting fcmetrics.Gauge) (*seats, error) {
	none := noGauge{}
	completer, err := queueset.NewQueueSetFactory(eventclock.Real{}).BeginConstruction(
		fq.QueuingConfig{Name: name, DesiredNumQueues: seatQueues, HandSize: handSize, QueueLengthLimit: queueLength},
		fcmetrics.RatioedGaugePair{RequestsWaiting: ratioed(waiting), RequestsExecuting: none}, none, none)
	if err != nil {
		return nil, err
	}
	dispatching := fq.DispatchingConfig{ConcurrencyLimit: count, ConcurrencyDenominator: count}
	return &seats{set: completer.Complete(dispatching), seed: maphash.MakeSeed()}, nil
}

// run waits for a seat and calls execute with it. It returns false, and does not call
// execute, if the queues are full or ctx ends first.
func (s *seats) run(ctx context.Context, f flow, execute func()) bool {
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

// acquire waits for a seat, until release is called. It returns false when run does.
// The queue set frees a seat when a function returns, so a goroutine waits in that
// function for release.
func (s *seats) acquire(ctx context.Context, f flow) (release func(), ok bool) {
	acquired, released := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx, f, func() {
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
func (s *seats) hash(f flow) uint64 {
	part := maphash.String(s.seed, f.Namespace) % namespaceFlows
	return maphash.Comparable(s.seed, struct {
		tenant string
		part   uint64
	}{f.Tenant, part})
}

// seat is that of one request. The request has it while it is handled, and releases it
// while it waits for a name or for its write. It is safe for use by many goroutines: a
// handler may run on after the response.
type seat struct {
	seats *seats
	flow  flow

	mu    sync.Mutex
	free  func() // nil if it is not acquired
	ended bool   // it cannot be acquired again
}

// acquire waits for the seat. It returns false when seats.run does, and after end.
func (s *seat) acquire(ctx context.Context) bool {
	free, ok := s.seats.acquire(ctx, s.flow)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		free()
		return false
	}
	s.free = free
	return true
}

func (s *seat) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != nil {
		s.free()
		s.free = nil
	}
}

// end releases the seat for good.
func (s *seat) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.release()
}

// releaseSeat releases the seat of a request that only waits and responds from now on.
func releaseSeat(ctx context.Context) {
	if s := callOf(ctx).seat; s != nil {
		s.release()
	}
}

// withoutSeat releases the seat of a request while it waits, and acquires it again. If
// ctx ends first, the request has no seat, and the caller must check ctx.
func withoutSeat(ctx context.Context, wait func()) {
	s := callOf(ctx).seat
	if s == nil {
		wait()
		return
	}
	s.release()
	wait()
	_ = s.acquire(ctx)
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
