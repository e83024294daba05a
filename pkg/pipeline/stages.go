package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// stages implements both of client-go's broadcasters: one broadcaster.Broadcaster, with
// any number of sinks and watchers.
type stages struct {
	ctx         context.Context // for its logger
	options     Options
	noSink      *ledger.Ledger
	broadcaster *broadcaster.Broadcaster
	repairs     *recorder.Repairs
	traits      *traitsCache
	// registerer and label are those of the metrics; nil for none. Only the first
	// error of registering is logged.
	registerer         prometheus.Registerer
	label              string
	nameHolder         *nameHolder
	registrationFailed sync.Once
	// detach stops the shutdown at the end of the broadcaster's context.
	detach func() bool

	// drains is the context of the sinks that drain after their own stop.
	drains    context.Context
	endDrains context.CancelFunc
	stopping  sync.WaitGroup

	mu       sync.Mutex
	shut     bool
	sinks    int // started so far
	watchers int // started so far
	writers  map[*writer]struct{}
	watching map[*subscription]struct{}
}

// newStages starts no goroutines. An error of registering metrics is only logged, since
// client-go's constructors return no errors.
func newStages(c broadcasterConfig) *stages {
	s := &stages{
		ctx:      context.WithoutCancel(c.ctx),
		options:  c.options,
		noSink:   newLedger(c.options.Trail),
		traits:   newTraitsCache(),
		writers:  make(map[*writer]struct{}),
		watching: make(map[*subscription]struct{}),
	}
	s.drains, s.endDrains = context.WithCancel(s.ctx)
	s.broadcaster = broadcaster.New(s.noSink)
	var err error
	if s.nameHolder, s.label, err = claimName(c.options.Registerer, c.options.Name, s.noSink); err == nil {
		s.registerer = c.options.Registerer
	}
	s.logRegistration(err)
	metrics := s.registrations("")
	s.repairs, _ = recorder.NewRepairs(metrics) // registrations report errors in publish
	s.logRegistration(metrics.publish())
	s.detach = context.AfterFunc(c.ctx, s.shutdownInTime)
	return s
}

// registrations returns the registrations of a sink, or of all others if sink is "". The
// caller must publish them, without the mutex.
func (s *stages) registrations(sink string) *registrations {
	r := labelled(s.registerer, s.label, sink)
	s.nameHolder.add(r)
	return r
}

// logRegistration logs the first error of registering metrics.
func (s *stages) logRegistration(err error) {
	if err == nil {
		return
	}
	s.registrationFailed.Do(func() {
		klog.FromContext(s.ctx).Error(err, "Could not register the metrics of an Event broadcaster", "broadcaster", s.options.Name)
	})
}

// write starts a sink with its own ledger. If another sink writes to the same server, the
// target joins that one: two sinks would count everything twice.
func (s *stages) write(to target) (*subscription, error) {
	out, metrics, err := s.joinOrStart(to)
	if err == nil && metrics != nil {
		s.logRegistration(metrics.publish())
	}
	return out, err
}

// joinOrStart returns nil registrations if the target joined a sink.
func (s *stages) joinOrStart(to target) (*subscription, *registrations, error) {
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
	s.limitDrains()
	s.sinks++
	l := newLedger(s.options.Trail)
	metrics := s.registrations(strconv.Itoa(s.sinks))
	if err := metrics.Register(l); err != nil {
		return nil, nil, err
	}
	o := s.options
	o.Sink = to.options
	w, err := startWriter(s.ctx, l, metrics, func(w *writer) error {
		if to.remote != nil {
			return w.startRemote(s.ctx, s.broadcaster, to.remote, o)
		}
		return w.start(s.ctx, s.broadcaster, to.client, o)
	})
	if err != nil {
		s.nameHolder.remove(metrics)
		return nil, nil, err
	}
	w.number, w.server, w.users = s.sinks, to.server, 1
	s.writers[w] = struct{}{}
	return s.subscriptionTo(w), metrics, nil
}

// maxDrains is the maximum number of stopped sinks that drain. Each has as many goroutines
// as a running one.
const maxDrains = 4

var errDrains = errors.New("too many stopped sinks of the broadcaster drain")

// limitDrains cancels the oldest drains, to allow one more. The mutex must be held.
func (s *stages) limitDrains() {
	var drains []*writer
	for w := range s.writers {
		if w.users == 0 {
			drains = append(drains, w)
		}
	}
	slices.SortFunc(drains, func(x, y *writer) int { return cmp.Compare(x.number, y.number) })
	for i := 0; i <= len(drains)-maxDrains; i++ {
		drains[i].cancel(errDrains)
	}
}

func (s *stages) subscriptionTo(w *writer) *subscription {
	return &subscription{stop: sync.OnceFunc(func() { s.stopWriter(w) }), done: w.done}
}

// stopWriter stops a sink, unless another target has joined it.
func (s *stages) stopWriter(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	w.subscriber.Stop()
	if s.shut {
		return // shutdown closes it
	}
	s.stopping.Go(func() {
		ctx, cancel := context.WithTimeout(s.drains, s.options.DrainTimeout)
		defer cancel()
		left := w.close(ctx)
		s.mu.Lock()
		delete(s.writers, w)
		s.mu.Unlock()
		s.nameHolder.remove(w.metrics)
		grace.Run(func() {
			w.metrics.unregisterAll()
			if left.Occurrences > 0 || left.Series > 0 {
				klog.FromContext(s.ctx).Error(&UndeliveredError{Occurrences: left.Occurrences, Series: left.Series}, "Event sink stopped before everything was written")
			}
		})
	})
}

// UndeliveredError reports what a shutdown did not deliver before its context ended.
type UndeliveredError struct {
	// Occurrences and Series are the numbers of those that were not written. The
	// occurrences are settled as dropped or uncertain.
	Occurrences int64
	Series      int
	// Watchers is the number of watchers whose handlers had not returned.
	Watchers int
	// Cause is the cause of the context's end.
	Cause error
}

// Error implements error.
func (e *UndeliveredError) Error() string {
	text := fmt.Sprintf("%d occurrences of %d series were not written", e.Occurrences, e.Series)
	if e.Watchers > 0 {
		text += fmt.Sprintf(", %d watchers did not return", e.Watchers)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *UndeliveredError) Unwrap() error { return e.Cause }

// shutdown stops recording, and delivers what is pending until the context ends. It returns
// within a second after that. All goroutines have ended then, except for calls of sinks,
// handlers and callbacks that do not return.
func (s *stages) shutdown(ctx context.Context) error {
	s.detach()
	defer s.nameHolder.shutDown()
	defer context.AfterFunc(ctx, s.endDrains)()
	s.mu.Lock()
	s.shut = true // before watchers end: their metrics stay
	s.mu.Unlock()
	s.broadcaster.Shutdown()
	s.mu.Lock()
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
	watching := slices.Collect(maps.Keys(s.watching))
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
	s.endDrains()
	s.stopping.Wait()
	if left.Occurrences == 0 && left.Series == 0 && left.Watchers == 0 {
		return nil
	}
	left.Cause = context.Cause(ctx)
	return &left
}

// shutdownInTime is shutdown with DrainTimeout, which logs the error.
func (s *stages) shutdownInTime() {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.DrainTimeout)
	defer cancel()
	if err := s.shutdown(ctx); err != nil {
		grace.Run(func() {
			klog.FromContext(s.ctx).Error(err, "Event broadcaster shut down before everything was delivered", "broadcaster", s.options.Name)
		})
	}
}
