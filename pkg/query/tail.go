package query

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
)

const (
	// tailBatch is how many items are read at once.
	tailBatch = 32
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
	f, err := a.options.History.Follow(q.after)
	if err != nil {
		return lost(err)
	}
	defer f.Close()
	if err := errors.Join(s.bookmark(at, 0), s.flush()); err != nil {
		return err
	}
	for marked := time.Now(); ; {
		versions, reached, err := next(ctx, f)
		if err != nil {
			return lost(err)
		}
		sent, err := a.sendVersions(ctx, q, s, versions, at)
		if err != nil {
			return err
		}
		if reached != "" {
			at = reached
		}
		// Not for each batch of others: it would show when something happens in their namespaces.
		if !sent && time.Since(marked) < quietPeriod {
			continue
		}
		if err := errors.Join(s.bookmark(at, 0), s.flush()); err != nil {
			return err
		}
		marked = time.Now()
	}
}

// next returns the next versions, or none after quietPeriod.
func next(ctx context.Context, f *history.Follower) (versions []observer.Version, reached string, err error) {
	waiting, cancel := context.WithTimeout(ctx, quietPeriod)
	defer cancel()
	versions, reached, err = f.Next(waiting, tailBatch)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, "", nil
	}
	return versions, reached, err
}

// sendVersions sends those that the query is about. Each has the cursor before all of them, since they are
// one step of the follower: a client that resumes within them gets some twice, and misses none.
func (a *API) sendVersions(ctx context.Context, q *query, s *stream, versions []observer.Version, before string) (sent bool, err error) {
	var took time.Duration
	matching := versions[:0:0]
	for _, v := range versions {
		if !q.sees(v.Event.Namespace) {
			continue
		}
		if q.match != nil {
			matched, cost, err := a.matches.evaluate(ctx, q.match, v.Event)
			if took += cost; err != nil {
				return false, err
			}
			if !matched {
				continue
			}
		}
		matching = append(matching, v)
	}
	for _, v := range matching {
		item := itemOf(v)
		if err := s.send(frameAdded, v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), ResourceVersion: before, Event: &item}, before); err != nil {
			return false, err
		}
	}
	sent = len(matching) > 0
	if sent {
		err = s.flush()
	}
	if err == nil && q.match != nil {
		err = sleep(ctx, (matchShare-1)*took)
	}
	return sent, err
}

// sendSteps sends what is done from now on.
func (a *API) sendSteps(ctx context.Context, q *query, s *stream) error {
	f := a.options.Trail.Follow()
	defer f.Close()
	for {
		steps, missed, err := nextSteps(ctx, f)
		if err != nil {
			return err
		}
		for i := range steps {
			if !q.sees(steps[i].Namespace) {
				continue
			}
			if err := s.send(frameAdded, v1alpha1.TailItem{TypeMeta: typeMeta("TailItem"), Step: &steps[i]}, ""); err != nil {
				return err
			}
		}
		if missed > 0 || len(steps) == 0 {
			if missed > 0 && q.Namespaces != nil {
				missed = 1 // they are of all namespaces
			}
			if err := s.bookmark("", missed); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// nextSteps returns the next steps, or none after quietPeriod.
func nextSteps(ctx context.Context, f *trail.Follower) (steps []v1alpha1.Step, missed int64, err error) {
	waiting, cancel := context.WithTimeout(ctx, quietPeriod)
	defer cancel()
	steps, missed, err = f.Next(waiting, tailBatch)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, 0, nil
	}
	return steps, missed, err
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
