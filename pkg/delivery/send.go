package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/receiver"
)

const (
	// The backoff between two attempts doubles from minBackoff to maxBackoff.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// maxRetryAfter bounds how long a destination can ask to wait.
	maxRetryAfter = 5 * time.Minute
	// leadershipPoll is how often a worker checks leadership while another process leads. Its
	// context ends soon after.
	leadershipPoll = 100 * time.Millisecond
	// maxErrorText bounds the text of an error in bytes: it may quote an answer.
	maxErrorText = 512
)

// startDestination starts the goroutine of the calls, when the one of an earlier worker of this
// receiver has ended. It returns false when ctx has ended.
func (w *worker) startDestination(ctx context.Context) bool {
	former := w.delivery.destinationOf(w.config.Name)
	if former != nil {
		w.account.setState(StateHanging)
		select {
		case <-former.ended:
		case <-ctx.Done():
			return false
		}
	}
	w.destination = startDestination()
	w.delivery.setDestination(w.config.Name, w.destination)
	return true
}

func (w *worker) timeout() time.Duration {
	if t := w.config.Timeout; t != nil && t.Duration > 0 {
		return t.Duration
	}
	return defaultTimeout
}

// open makes the receiver. It returns false when ctx has ended.
func (w *worker) open(ctx context.Context) bool {
	for {
		w.account.setState(StateStarting)
		a, ok := w.destination.call(ctx, w.timeout(), func(context.Context) (a answer) {
			w.destination.receiver, a.err = w.delivery.options.NewReceiver(w.config)
			return a
		}, func() { w.hang(ctx) })
		if !ok || a.err == nil {
			return ok && ctx.Err() == nil
		}
		w.account.openFailed()
		w.account.failed(a.err)
		w.log(ctx, "open", a.err, "Could not start a receiver")
		if !w.backOff(ctx, &w.failures, a.err) {
			return false
		}
	}
}

// hang records that a call ignores its timeout.
func (w *worker) hang(ctx context.Context) {
	w.account.failed(errHangs)
	w.account.setState(StateHanging)
	w.log(ctx, "hang", errHangs, "A receiver ignores its timeout. Nothing is sent to it until its call returns")
}

var errHangs = errors.New("a call has not returned after its timeout")

// send sends records until they are settled. It returns false when ctx has ended.
func (w *worker) send(ctx context.Context, o outgoing) bool {
	for {
		a, ok := w.attempt(ctx, o.records)
		switch {
		case !ok:
			return false
		case a.err == nil:
			w.failures = 0
			w.settle(o, a.rejected, nil)
			return true
		case !isPermanent(a.err):
			if hasProgressed(a.err) {
				w.failures = 0 // it is slow, and not away
			}
			if !w.backOff(ctx, &w.failures, a.err) {
				return false
			}
		case len(o.records) > 1: // so that only what is refused is given up
			half := len(o.records) / 2
			return w.send(ctx, o.first(half)) && w.send(ctx, o.after(half))
		default:
			w.failures = 0
			w.log(ctx, "rejected", fmt.Errorf("%s: %w", o.records[0].ID, a.err), "A receiver has rejected an Event for good")
			w.settle(o, 1, a.err)
			return true
		}
	}
}

// attempt sends records once. ok is false if ctx has ended before they were acknowledged.
func (w *worker) attempt(ctx context.Context, records []receiver.Record) (a answer, ok bool) {
	for ctx.Err() == nil {
		a, ok = w.sendOnce(ctx, records)
		if !errors.Is(a.err, errNotLeading) {
			return a, ok
		}
		_ = sleep.For(ctx, leadershipPoll)
	}
	return answer{}, false
}

// errNotLeading: nothing was sent, since another process leads.
var errNotLeading = errors.New("this process does not lead")

func (w *worker) sendOnce(ctx context.Context, records []receiver.Record) (_ answer, ok bool) {
	w.account.setState(StateSending)
	began, hung := time.Now(), false
	a, returned := w.destination.call(ctx, w.timeout(), func(ctx context.Context) (a answer) {
		if !w.delivery.leading() {
			return answer{err: errNotLeading}
		}
		a.rejected, a.err = w.destination.receiver.Send(ctx, records)
		return a
	}, func() {
		hung = true
		w.account.attempted(resultTimeout, time.Since(began))
		w.hang(ctx)
	})
	if errors.Is(a.err, errNotLeading) {
		return a, true
	}
	canceled := !returned || a.err != nil && ctx.Err() != nil
	if !hung {
		w.account.attempted(resultOf(a, canceled), time.Since(began))
	}
	if canceled {
		return answer{}, false
	}
	if a.err != nil {
		w.account.failed(a.err)
		w.log(ctx, "send", a.err, "Could not deliver to a receiver")
	}
	return a, true
}

func resultOf(a answer, canceled bool) result {
	switch {
	case canceled:
		return resultCanceled
	case a.err == nil && a.rejected > 0:
		return resultPartial
	case a.err == nil:
		return resultSuccess
	case isPermanent(a.err):
		return resultRefused
	case retryAfter(a.err) > 0:
		return resultThrottled
	case errors.Is(a.err, context.DeadlineExceeded):
		return resultTimeout
	default:
		return resultError
	}
}

func isPermanent(err error) bool {
	refusal, ok := errors.AsType[*receiver.Error](err)
	return ok && refusal.Permanent
}

func hasProgressed(err error) bool {
	failure, ok := errors.AsType[*receiver.Error](err)
	return ok && failure.Progressed
}

func retryAfter(err error) time.Duration {
	if refusal, ok := errors.AsType[*receiver.Error](err); ok {
		return min(refusal.RetryAfter, maxRetryAfter)
	}
	return 0
}

// backOff waits before another attempt, after a number of failures. It returns false when ctx has
// ended.
func (w *worker) backOff(ctx context.Context, failures *int, err error) bool {
	*failures++
	delay := max(sleep.Backoff(minBackoff, maxBackoff, *failures), retryAfter(err))
	w.account.setBackingOff(time.Now().Add(delay))
	return sleep.For(ctx, delay) == nil
}

// bounded returns an error with a text that is bounded, and valid UTF-8.
func bounded(err error) error { return errors.New(eventfields.ValidUTF8(err.Error(), maxErrorText)) }
