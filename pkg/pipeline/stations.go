package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/pkg/broadcaster"
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

// newStations starts no goroutines. What is wrong with the metrics is logged:
// client-go's constructors return no errors.
func newStations(c broadcasterConfig) *stations {
	s := &stations{
		ctx:      context.WithoutCancel(c.ctx),
		options:  c.options,
		unsunk:   ledger.New(),
		writers:  make(map[*writer]struct{}),
		watching: make(map[*subscription]struct{}),
	}
	s.hurried, s.hurry = context.WithCancel(s.ctx)
	s.broadcaster = broadcaster.New(s.unsunk)
	metrics := labelled(c.options.Registerer, c.options.Name, "")
	err := metrics.Register(s.unsunk)
	if err == nil {
		s.repairs, err = recorder.NewRepairs(metrics)
	}
	if err != nil {
		klog.FromContext(s.ctx).Error(err, "Metrics of an event broadcaster are not registered", "broadcaster", c.options.Name)
	}
	s.forget = context.AfterFunc(c.ctx, s.shutdownInTime)
	return s
}

// write subscribes a sink with a ledger of its own. If another one writes to the
// same server, that one is joined: two would count everything twice there.
func (s *stations) write(to target) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.writers {
		if to.server != "" && w.server == to.server && w.users > 0 {
			if own, ok := w.client.(*coreREST); ok {
				own.join(to.client.(*coreREST))
			}
			w.users++
			return s.subscriptionTo(w), nil
		}
	}
	s.sinks++
	l := ledger.New()
	metrics := labelled(s.options.Registerer, s.options.Name, strconv.Itoa(s.sinks))
	if err := metrics.Register(l); err != nil {
		return nil, err
	}
	o := s.options
	o.Sink = to.options
	w, err := startWriter(s.ctx, s.broadcaster, l, to.client, o, metrics)
	if err != nil {
		return nil, err
	}
	w.server, w.client, w.users = to.server, to.client, 1
	s.writers[w] = struct{}{}
	return s.subscriptionTo(w), nil
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
		if left := w.close(ctx); left.Series > 0 {
			klog.FromContext(s.ctx).Error(&UndeliveredError{Occurrences: left.Occurrences, Series: left.Series}, "Event sink stopped")
		}
		w.metrics.takeBack()
		s.mu.Lock()
		delete(s.writers, w)
		s.mu.Unlock()
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
// and returns what it could not deliver. All goroutines have ended when it
// returns, but those of watchers' handlers and foreign sinks that do not return.
func (s *stations) shutdown(ctx context.Context) error {
	s.forget()
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
		klog.FromContext(s.ctx).Error(err, "Event broadcaster shut down", "broadcaster", s.options.Name)
	}
}
