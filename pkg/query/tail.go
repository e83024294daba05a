package query

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/trail"
)

const (
	// tailBatch is how many versions are read at once, and stepBatch how many steps, which nothing decodes.
	tailBatch, stepBatch = 32, 256
	// matchShare is the part of the time in which a tail evaluates its expression: 1/50. A tail with a
	// costly one becomes slow, and loses its place, before the tails of all clients take a processor.
	matchShare = 50
)

// sendEvents sends what is observed, in order, from the cursor of the query on.
func (a *API) sendEvents(ctx context.Context, q *query, s *stream) error {
	at := q.after
	if at == "" {
		at = a.options.History.Status().ResourceVersion // before Follow: nothing is missed after it
	}
	f, err := a.options.History.Follow(q.after, q.tenant)
	if err != nil {
		return lost(err)
	}
	defer f.Close()
	b := &bookmarks{send: func() error { return errors.Join(s.bookmark(at, 0), s.flush()) }}
	if err := b.mark(); err != nil {
		return err
	}
	unmarked := false // sent items, which may still be in the buffer
	for {
		versions, reached, err := next(ctx, b.due, func(ctx context.Context) ([]observer.Version, string, error) { return f.Next(ctx, tailBatch) })
		if err != nil {
			return lost(err)
		}
		sent, took, err := a.sendVersions(ctx, q, s, versions, at)
		if err != nil {
			return err
		}
		if reached != "" {
			at = reached
		}
		unmarked = unmarked || sent
		// Not for each batch of others: it would show when something happens in their namespaces.
		if unmarked && f.UpToDate() {
			err, unmarked = b.mark(), false
		}
		if err := errors.Join(err, b.rest(ctx, (matchShare-1)*took)); err != nil {
			return err
		}
	}
}

// sendVersions encodes those that the query is about. Each has the cursor before all of them, since they are
// one step of the follower: a client that resumes within them gets some twice, and misses none. It returns how
// long the expression took.
func (a *API) sendVersions(ctx context.Context, q *query, s *stream, versions []observer.Version, before string) (sent bool, took time.Duration, err error) {
	matching, took, err := matching(ctx, a, q, versions, func(v observer.Version) (string, func() *corev1.Event) {
		return v.Event.Namespace, func() *corev1.Event { return v.Event }
	})
	if err != nil {
		return false, took, err
	}
	prefix, err := itemPrefix(before, "event")
	if err != nil {
		return false, took, err
	}
	for _, v := range matching {
		item, err := a.encodings.encode(v.Event, func() any { return itemOf(v) })
		if err == nil {
			err = s.sendItem(prefix, before, item)
		}
		if err != nil {
			return false, took, err
		}
	}
	return len(matching) > 0, took, nil
}

// sendSteps sends what is done from now on.
func (a *API) sendSteps(ctx context.Context, q *query, s *stream) error {
	f := a.options.Trail.Follow()
	defer f.Close()
	var missed int64 // since the last bookmark
	b := &bookmarks{send: func() error {
		defer func() { missed = 0 }()
		return errors.Join(s.bookmark("", missed), s.flush())
	}}
	b.begin()
	for {
		steps, lost, err := next(ctx, b.due, func(ctx context.Context) ([]*trail.Step, int64, error) { return f.Next(ctx, stepBatch) })
		if err != nil {
			return err
		}
		took, err := a.sendMatchingSteps(ctx, q, s, steps)
		if err != nil {
			return err
		}
		if missed += lost; missed > 0 && q.Namespaces != nil {
			missed = 1 // they are of all namespaces
		}
		switch {
		case !f.UpToDate():
		case missed > 0:
			err = b.mark()
		default:
			err = s.flush()
		}
		if err := errors.Join(err, b.rest(ctx, (matchShare-1)*took)); err != nil {
			return err
		}
	}
}

// sendMatchingSteps encodes those that the query is about, and returns how long the expression took.
func (a *API) sendMatchingSteps(ctx context.Context, q *query, s *stream, steps []*trail.Step) (took time.Duration, err error) {
	matching, took, err := matching(ctx, a, q, steps, func(step *trail.Step) (string, func() *corev1.Event) {
		return step.Namespace, func() *corev1.Event { return eventOf(step) }
	})
	if err != nil {
		return took, err
	}
	prefix, err := itemPrefix("", "step")
	if err != nil {
		return took, err
	}
	for _, step := range matching {
		item, err := a.encodings.encode(step, func() any { return stepOf(step) })
		if err == nil {
			err = s.sendItem(prefix, "", item)
		}
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// matching returns the items that a tail sends, and how long its expression took. of returns the namespace of an
// item, and the Event that the expression sees.
func matching[T any](ctx context.Context, a *API, q *query, items []T, of func(T) (namespace string, event func() *corev1.Event)) (out []T, took time.Duration, err error) {
	var events []*corev1.Event
	for _, item := range items {
		namespace, event := of(item)
		if !q.sees(namespace) {
			continue
		}
		out = append(out, item)
		if q.match != nil {
			events = append(events, event())
		}
	}
	if len(events) == 0 {
		return out, 0, nil
	}
	matched, took, err := a.matches.evaluate(ctx, q.tenant, q.match, events)
	if err != nil {
		return nil, took, err
	}
	matches := out[:0]
	for i, item := range out {
		if matched[i] {
			matches = append(matches, item)
		}
	}
	return matches, took, nil
}

// next returns what a follower has next, or nothing if there is nothing until due.
func next[T, U any](ctx context.Context, due time.Time, follow func(context.Context) ([]T, U, error)) (items []T, more U, err error) {
	waiting, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	items, more, err = follow(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, more, nil
	}
	return items, more, err
}

// bookmarks are those of a source of a tail: at the latest quietPeriod after the one before, whatever else is
// sent, so that a client can tell a quiet tail from a dead one.
type bookmarks struct {
	send func() error
	due  time.Time
}

func (b *bookmarks) begin() { b.due = time.Now().Add(quietPeriod) }

// mark sends one now.
func (b *bookmarks) mark() error {
	b.begin()
	return b.send()
}

// rest sends one if it is due, and waits, sending those that are due meanwhile.
func (b *bookmarks) rest(ctx context.Context, d time.Duration) error {
	for {
		if !time.Now().Before(b.due) {
			if err := b.mark(); err != nil {
				return err
			}
		}
		if d <= 0 {
			return nil
		}
		pause := min(d, time.Until(b.due))
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		d -= pause
	}
}

// lost returns the error with which a tail ends.
func lost(err error) error {
	switch {
	case errors.Is(err, history.ErrExpired):
		return expired()
	case errors.Is(err, history.ErrInvalid):
		return apierrors.NewBadRequest(err.Error())
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
