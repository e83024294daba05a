package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/recorder"
)

// stations are what both of client-go's broadcasters are made of: one
// broadcaster, and any number of sinks and watchers behind it.
type stations struct {
	ctx         context.Context // for its logger
	options     Options
	unsunk      *ledger.Ledger
	broadcaster *broadcaster.Broadcaster
	repairs     *recorder.Repairs
	habits      *habitsOf
	// registerer and label are what metrics are registered with, and under; nil
	// for none. Only the first error is logged.
	registerer  prometheus.Registerer
	label       string
	nameplate   *nameplate
	complaining sync.Once
	// forget lets go of the context whose end shuts this down.
	forget func() bool

	// hurry ends the drains of sinks that were stopped alone.
	hurried  context.Context
	hurry    context.CancelFunc
	stopping sync.WaitGroup

	mu       sync.Mutex
	shut     bool
	sinks    int // started so far
	watchers int // started so far
	writers  map[*writer]struct{}
	watching map[*subscription]struct{}
}

// newStations starts no goroutines. What is wrong with the metrics is logged, and
// costs no Events: client-go's constructors return no errors.
func newStations(c broadcasterConfig) *stations {
	s := &stations{
		ctx:      context.WithoutCancel(c.ctx),
		options:  c.options,
		unsunk:   ledger.New(),
		habits:   newHabitsOf(),
		writers:  make(map[*writer]struct{}),
		watching: make(map[*subscription]struct{}),
	}
	s.hurried, s.hurry = context.WithCancel(s.ctx)
	s.broadcaster = broadcaster.New(s.unsunk)
	var err error
	if s.nameplate, s.label, err = claimName(c.options.Registerer, c.options.Name, s.unsunk); err == nil {
		s.registerer = c.options.Registerer
	}
	s.complain(err)
	metrics := s.registrations("")
	s.repairs, _ = recorder.NewRepairs(metrics) // it only waits to be published
	s.complain(metrics.publish())
	s.forget = context.AfterFunc(c.ctx, s.shutdownInTime)
	return s
}

// registrations returns some for a sink, "" for what belongs to none. Whoever
// registers must publish them, without the mutex.
func (s *stations) registrations(sink string) *registrations {
	r := labelled(s.registerer, s.label, sink)
	s.nameplate.add(r)
	return r
}

// complain logs the first error of registering metrics.
func (s *stations) complain(err error) {
	if err == nil {
		return
	}
	s.complaining.Do(func() {
		klog.FromContext(s.ctx).Error(err, "Metrics of an event broadcaster are not registered", "broadcaster", s.options.Name)
	})
}

// write subscribes a sink with a ledger of its own. If another one writes to the
// same server, that one is joined: two would count everything twice there.
func (s *stations) write(to target) (*subscription, error) {
	out, metrics, err := s.joinOrStart(to)
	if err == nil && metrics != nil {
		s.complain(metrics.publish())
	}
	return out, err
}

// joinOrStart returns no metrics if a sink was joined.
func (s *stations) joinOrStart(to target) (*subscription, *registrations, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.writers {
		if to.server != "" && w.server == to.server && w.users > 0 {
			if own, ok := w.client.(*coreREST); ok {
				own.join(to.client.(*coreREST))
			}
			w.users++
			return s.subscriptionTo(w), nil, nil
		}
	}
	s.hurryDrains()
	s.sinks++
	l := ledger.New()
	metrics := s.registrations(strconv.Itoa(s.sinks))
	if err := metrics.Register(l); err != nil {
		return nil, nil, err
	}
	o := s.options
	o.Sink = to.options
	w, err := startWriter(s.ctx, s.broadcaster, l, to.client, o, metrics)
	if err != nil {
		s.nameplate.remove(metrics)
		return nil, nil, err
	}
	w.number, w.server, w.users = s.sinks, to.server, 1
	s.writers[w] = struct{}{}
	return s.subscriptionTo(w), metrics, nil
}

// maxDrains is how many sinks that were stopped alone may still write what they
// owe: each has as many goroutines as one that runs.
const maxDrains = 4

var errDrains = errors.New("too many sinks of the broadcaster were stopped and started again since")

// hurryDrains ends the oldest of those, so that there is room for one more. The
// mutex must be held.
func (s *stations) hurryDrains() {
	var drains []*writer
	for w := range s.writers {
		if w.users == 0 {
			drains = append(drains, w)
		}
	}
	slices.SortFunc(drains, func(x, y *writer) int { return cmp.Compare(x.number, y.number) })
	for i := 0; i <= len(drains)-maxDrains; i++ {
		drains[i].giveUp(errDrains)
	}
}

func (s *stations) subscriptionTo(w *writer) *subscription {
	return &subscription{stop: sync.OnceFunc(func() { s.stopWriter(w) }), done: w.done}
}

// stopWriter ends one sink while the others go on, unless somebody else uses it.
func (s *stations) stopWriter(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	w.subscriber.Stop()
	if s.shut {
		return // it is being closed
	}
	s.stopping.Go(func() {
		ctx, cancel := context.WithTimeout(s.hurried, s.options.DrainTimeout)
		defer cancel()
		left := w.close(ctx)
		s.mu.Lock()
		delete(s.writers, w)
		s.mu.Unlock()
		s.nameplate.remove(w.metrics)
		grace.Run(func() {
			w.metrics.takeBack()
			if left.Occurrences > 0 || left.Series > 0 {
				klog.FromContext(s.ctx).Error(&UndeliveredError{Occurrences: left.Occurrences, Series: left.Series}, "Event sink stopped")
			}
		})
	})
}

// UndeliveredError says what a shutdown could not deliver.
type UndeliveredError struct {
	// Occurrences, of so many series, that are not written. They are settled
	// in the metrics as dropped or uncertain.
	Occurrences int64
	Series      int
	// Watchers whose handlers had not returned.
	Watchers int
	// Cause is why the shutdown had no more time.
	Cause error
}

// Error implements error.
func (e *UndeliveredError) Error() string {
	text := fmt.Sprintf("%d occurrences of %d series were not written", e.Occurrences, e.Series)
	if e.Watchers > 0 {
		text += fmt.Sprintf(", %d watchers were not done", e.Watchers)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *UndeliveredError) Unwrap() error { return e.Cause }

// shutdown takes nothing new, delivers what was recorded until the context ends,
// and returns what it could not deliver, within a second after that. All goroutines
// have ended when it returns, but those that run code of others, which does not
// return.
func (s *stations) shutdown(ctx context.Context) error {
	s.forget()
	defer s.nameplate.shutDown()
	defer context.AfterFunc(ctx, s.hurry)()
	s.broadcaster.Shutdown()
	s.mu.Lock()
	s.shut = true
	var left UndeliveredError
	var closing sync.WaitGroup
	var sum sync.Mutex
	for w := range s.writers {
		closing.Go(func() {
			pending := w.close(ctx)
			sum.Lock()
			defer sum.Unlock()
			left.Occurrences += pending.Occurrences
			left.Series += pending.Series
		})
	}
	var watching []*subscription
	for w := range s.watching {
		watching = append(watching, w)
	}
	s.mu.Unlock()

	for _, w := range watching {
		select {
		case <-w.done:
		case <-ctx.Done():
			select {
			case <-w.done:
			default:
				left.Watchers++ // before closing.Wait, and not shared
			}
		}
	}
	closing.Wait()
	s.hurry()
	s.stopping.Wait()
	if left.Occurrences == 0 && left.Series == 0 && left.Watchers == 0 {
		return nil
	}
	left.Cause = context.Cause(ctx)
	return &left
}

// shutdownInTime is shutdown for those who give no context.
func (s *stations) shutdownInTime() {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.DrainTimeout)
	defer cancel()
	if err := s.shutdown(ctx); err != nil {
		grace.Run(func() {
			klog.FromContext(s.ctx).Error(err, "Event broadcaster shut down", "broadcaster", s.options.Name)
		})
	}
}
