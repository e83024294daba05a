package delivery

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
)

// session is the part of a term in which one source is read. The goroutine of Run owns it.
type session struct {
	delivery *Delivery
	cursors  *cursors
	workers  map[string]*worker // by receiver

	source Source        // nil before a worker needs it
	ended  chan struct{} // closed when the source has ended
	err    error         // of the source, after it has ended
}

// run follows the configuration until ctx ends, there are no receivers, or the source fails.
func (s *session) run(ctx context.Context) error {
	for {
		receivers := s.delivery.configuration.Load().receivers
		if len(receivers) == 0 {
			s.stopChanged(nil)
			s.cursors.setReceivers(ctx, nil) // stored at the end of the session
			return nil
		}
		if err := s.reconcile(ctx, receivers); err != nil {
			return err
		}
		select {
		case <-s.delivery.changed:
		case <-ctx.Done():
			return nil
		case <-s.ended: // nil, and so never ready, without a source
			if ctx.Err() != nil {
				return nil
			}
			return s.err
		}
	}
}

// stop waits for the workers and the source, whose context has ended.
func (s *session) stop() {
	for _, w := range s.workers {
		<-w.done
	}
	if s.ended != nil {
		grace.Wait(s.ended)
	}
}

// reconcile stops workers whose receiver has changed, and starts those that are missing.
func (s *session) reconcile(ctx context.Context, receivers []v1alpha1.Receiver) error {
	s.stopChanged(receivers)
	s.cursors.setReceivers(ctx, receivers)
	var missing []*worker
	var starts []observer.Start
	for _, r := range receivers {
		account := s.delivery.account(r.Name)
		if s.workers[r.Name] != nil || account == nil { // removed meanwhile
			continue
		}
		w := &worker{config: r, delivery: s.delivery, cursors: s.cursors, account: account, done: make(chan struct{})}
		var restored bool
		if w.start, restored = s.cursors.start(&r); restored {
			account.restore()
			s.cursors.advance(r.Name, w.start.Cursor)
		}
		missing = append(missing, w)
		if w.reads() {
			starts = append(starts, w.start)
		}
	}
	if len(starts) > 0 {
		if err := s.startSource(ctx, starts); err != nil {
			return err
		}
	}
	for _, w := range missing {
		s.startWorker(ctx, w)
	}
	return nil
}

// reads reports whether the worker needs a reader.
func (w *worker) reads() bool { return !w.config.Paused || w.isNew() }

// stopChanged stops the workers of receivers that have changed or were removed, and of those that
// retry: what they hold is routed again, so that a route can drop what a destination fails for.
func (s *session) stopChanged(receivers []v1alpha1.Receiver) {
	same := make(map[string]bool, len(receivers))
	for _, r := range receivers {
		w := s.workers[r.Name]
		same[r.Name] = w != nil && reflect.DeepEqual(w.config, r) && w.account == s.delivery.account(r.Name) && !w.account.isRetrying()
	}
	var stopping []*worker
	for name, w := range s.workers {
		if !same[name] {
			w.cancel()
			stopping = append(stopping, w)
			delete(s.workers, name)
		}
	}
	for _, w := range stopping {
		<-w.done
	}
}

// startSource starts the source if there is none.
func (s *session) startSource(ctx context.Context, starts []observer.Start) error {
	if s.source != nil {
		return nil
	}
	source, err := s.delivery.options.NewSource(lowest(starts))
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	s.source, s.ended = source, make(chan struct{})
	go func() {
		defer close(s.ended)
		if s.err = source.Run(ctx); s.err == nil {
			s.err = errSourceEnded
		}
	}()
	return nil
}

var errSourceEnded = errors.New("the source has ended")

func (s *session) startWorker(ctx context.Context, w *worker) {
	if w.reads() {
		w.reader = s.source.Reader(w.start)
		w.account.attach(w.reader)
	}
	w.account.setState(StateStarting)
	ctx, w.cancel = context.WithCancel(ctx)
	s.workers[w.config.Name] = w
	go w.run(ctx)
}
