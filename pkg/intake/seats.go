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
	// seatQueues and handSize are for the shuffle sharding of API priority and
	// fairness: a flow waits in one of handSize queues of its own, whichever is
	// shortest. That all of them are another flow's as well has a probability of one
	// in 635,376.
	seatQueues = 64
	handSize   = 4
	// namespaceFlows is how many flows a tenant is divided into by the namespaces of
	// its requests. With as many flows as namespaces a tenant that may write
	// everywhere would be in every queue.
	namespaceFlows = 4
)

// seats are how many requests are worked on at once. Requests that wait for a
// seat stand in the queues of their flow, and flows take turns in proportion to the
// time that their requests have had (k8s.io/apiserver, fairqueuing/queueset). It
// is safe for use by many goroutines.
type seats struct {
	set  fq.QueueSet
	seed maphash.Seed // nobody can choose whose queues to be in
}

// newSeats returns seats that are free. A queue takes queueLength requests.
func newSeats(name string, count, queueLength int, waiting fcmetrics.Gauge) (*seats, error) {
	none := unobserved{}
	completer, err := queueset.NewQueueSetFactory(eventclock.Real{}).BeginConstruction(
		fq.QueuingConfig{Name: name, DesiredNumQueues: seatQueues, HandSize: handSize, QueueLengthLimit: queueLength},
		fcmetrics.RatioedGaugePair{RequestsWaiting: observedBy(waiting), RequestsExecuting: none}, none, none)
	if err != nil {
		return nil, err
	}
	dispatching := fq.DispatchingConfig{ConcurrencyLimit: count, ConcurrencyDenominator: count}
	return &seats{set: completer.Complete(dispatching), seed: maphash.MakeSeed()}, nil
}

// run waits for a seat and executes with it. It is false, and nothing was executed,
// if there are too many that wait, or ctx is over first.
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

// take waits for a seat, which is had until leave is called. It is false as run is.
// The queue set knows a seat only for the time of a function, so that is a
// goroutine that waits for leave.
func (s *seats) take(ctx context.Context, f flow) (leave func(), ok bool) {
	taken, left := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx, f, func() {
			close(taken)
			<-left
		})
	}()
	select {
	case <-taken:
		return sync.OnceFunc(func() {
			close(left)
			<-ended // or a request that is answered would still have its seat
		}), true
	case <-ended:
		return nil, false
	}
}

// hash tells flows apart for the queue set.
func (s *seats) hash(f flow) uint64 {
	part := maphash.String(s.seed, f.Namespace) % namespaceFlows
	return maphash.Comparable(s.seed, struct {
		tenant string
		part   uint64
	}{f.Tenant, part})
}

// seat is what a request has while it is worked on, and has not while it waits for
// its turn at a name or for its write. It is safe for use by many goroutines: a
// handler may go on after its request has been answered.
type seat struct {
	seats *seats
	flow  flow

	mu    sync.Mutex
	leave func() // nil if it is not taken
	ended bool   // it is not taken again
}

// take is false if there is no seat to be had.
func (s *seat) take(ctx context.Context) bool {
	leave, ok := s.seats.take(ctx, s.flow)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		leave()
		return false
	}
	s.leave = leave
	return true
}

func (s *seat) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
}

// end releases the seat for good.
func (s *seat) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.release()
}

// leaveSeat is called by who has nothing more to do but to wait and to answer.
func leaveSeat(ctx context.Context) {
	if s := callOf(ctx).seat; s != nil {
		s.release()
	}
}

// withoutSeat has somebody wait without a seat, who then goes on with one; or
// without, if ctx is over, which is for the caller to find out.
func withoutSeat(ctx context.Context, wait func()) {
	s := callOf(ctx).seat
	if s == nil {
		wait()
		return
	}
	s.release()
	wait()
	_ = s.take(ctx)
}

// unobserved and observed are what a queue set tells about itself.
type unobserved struct{}

func (unobserved) Set(float64)            {}
func (unobserved) Inc()                   {}
func (unobserved) Dec()                   {}
func (unobserved) Add(float64)            {}
func (unobserved) SetToCurrentTime()      {}
func (unobserved) SetDenominator(float64) {}

type observed struct{ fcmetrics.Gauge }

func (observed) SetDenominator(float64) {}

func observedBy(g fcmetrics.Gauge) fcmetrics.RatioedGauge {
	if g == nil {
		return unobserved{}
	}
	return observed{g}
}
