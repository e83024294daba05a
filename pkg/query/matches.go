package query

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/rules"
)

const (
	// allMatchShare is the part of one processor that the expressions of all tails take: 1/4. It outlasts a
	// tail, so that a client cannot begin anew with one.
	allMatchShare = 4
	// maxMatchDebt is how long expressions may run before that counts.
	maxMatchDebt = 5 * time.Millisecond
)

// matches evaluates the expressions of all tails, one at a time.
type matches struct {
	place chan struct{} // has an element while none is evaluated
	free  time.Time     // when the next may begin, at most maxMatchDebt before
}

func newMatches() *matches {
	m := &matches{place: make(chan struct{}, 1)}
	m.place <- struct{}{}
	return m
}

// evaluate returns whether an Event matches, and how long that took. Its error is the cause of ctx.
func (m *matches) evaluate(ctx context.Context, expression *rules.Expression, event *corev1.Event) (matched bool, took time.Duration, err error) {
	select {
	case <-m.place:
	case <-ctx.Done():
		return false, 0, context.Cause(ctx)
	}
	defer func() { m.place <- struct{}{} }()
	if debt := time.Until(m.free); debt > maxMatchDebt {
		if err := sleep(ctx, debt); err != nil {
			return false, 0, err
		}
	}
	began := time.Now()
	matched = expression.Matches(event)
	ended := time.Now()
	took = ended.Sub(began)
	if m.free.Before(ended) {
		m.free = ended
	}
	m.free = m.free.Add((allMatchShare - 1) * took)
	return matched, took, nil
}
