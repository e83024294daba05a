package query

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/trail"
)

const (
	// tailInterval is between two turns of a tail that has sent all there was. A turn costs the process some
	// wakeups, whatever it sends, so a storm costs each tail 4 of them per second and not one for each item.
	tailInterval = 250 * time.Millisecond
	// tailPhases is at how many times within a tailInterval tails have their turns. One would delay reports by the turns
	// of all tails; with as many as there are tails, each would wake an idle processor for itself.
	tailPhases = 10
	// tailBatch is how many versions are read at once, and stepBatch how many steps, which nothing decodes.
	tailBatch, stepBatch = 6, 256
	// matchShare is the part of the time in which a tail evaluates its expression: 1/50. A tail with a
	// costly one becomes slow, and loses its place, before the tails of all clients take a processor.
	matchShare = 50
)

// tail is an open one. One goroutine uses it.
type tail struct {
	api    *API
	query  *query
	stream *stream
	out    *lines            // of stream, or of a batch
	events *history.Follower // nil if it has no Events
	steps  *trail.Follower   // nil if it has no steps
	phase  time.Duration
	selection
	// at is the cursor behind what was read. unmarked: Events were sent after the last bookmark. missed are the steps
	// that were lost since then.
	at       string
	unmarked bool
	missed   int64
	// due is when the next bookmark is sent, whatever else is: a client can tell a quiet tail from a dead one.
	due time.Time
}

// newTail returns a tail that begins at the cursor of a query. The caller must close it.
func (a *API) newTail(q *query, s *stream) (*tail, error) {
	t := &tail{api: a, query: q, stream: s, out: &s.lines, selection: q.selection(), phase: time.Duration(a.tails.Add(1)%tailPhases) * tailInterval / tailPhases}
	if q.events {
		if t.at = q.after; t.at == "" {
			t.at = a.options.History.Status().ResourceVersion // before Follow: nothing is missed after it
		}
		var err error
		if t.events, err = a.options.History.Follow(q.after, q.caller); err != nil {
			return nil, err
		}
	}
	if q.steps {
		t.steps = a.options.Trail.Follow()
	}
	return t, nil
}

func (t *tail) close() {
	if t.events != nil {
		t.events.Close()
	}
	if t.steps != nil {
		t.steps.Close()
	}
}

// sendTail sends what is observed, in order, from the cursor of the query on, and what is done from now on. It
// returns when ctx ends, the client does not read, or the place of the tail is lost.
func (a *API) sendTail(ctx context.Context, q *query, s *stream) error {
	t, err := a.newTail(q, s)
	if err != nil {
		return lost(err)
	}
	defer t.close()
	if err := t.mark(); err != nil {
		return err
	}
	next := t.sendShared
	if !q.shared() {
		next = t.sendOwn
	}
	for {
		took, done, err := next(ctx)
		if err != nil {
			return lost(err)
		}
		pause := (matchShare - 1) * took
		if done {
			if err := t.flush(); err != nil {
				return err
			}
			pause = max(pause, t.untilTurn())
		}
		if err := t.rest(ctx, pause); err != nil {
			return err
		}
	}
}

// sendOwn sends some of what follows to this tail alone. It returns how long the expression took, and whether that was
// all there is.
func (t *tail) sendOwn(ctx context.Context) (took time.Duration, done bool, err error) {
	if took, err = t.encode(ctx, unlimited); err == nil {
		err = t.stream.flushFull()
	}
	return took, t.upToDate(), err
}

// sendShared sends the next batch of all tails that ask for the same, or makes it.
func (t *tail) sendShared(ctx context.Context) (took time.Duration, done bool, err error) {
	at, ok := t.place()
	if !ok {
		return t.sendOwn(ctx)
	}
	next, newest, early := t.api.batches.after(t.selection, at)
	switch {
	case next != nil:
		t.moveTo(next)
		return 0, false, t.sendBatch(next)
	case at.lags(newest):
		if _, err = t.encode(ctx, newest); err == nil {
			err = t.stream.flushFull()
		}
		return 0, false, err
	case at == newest && early:
		return 0, true, nil
	}
	next, err = t.makeBatch(ctx, at)
	if err != nil {
		return 0, false, err
	}
	return 0, next.complete, t.sendBatch(next)
}

// makeBatch encodes what follows, and keeps it for the others. The tail is at the end of it then.
func (t *tail) makeBatch(ctx context.Context, from place) (*batch, error) {
	out := &lines{sse: t.query.sse}
	t.out = out
	defer func() { t.out = &t.stream.lines }()
	one := &batch{}
	for !one.complete && out.Len() < maxBuffered {
		if _, err := t.encode(ctx, unlimited); err != nil {
			return nil, err
		}
		one.complete = t.upToDate()
	}
	if one.marked = t.unmarked || t.missed > 0; one.marked {
		if err := out.bookmark(t.at, t.missed); err != nil {
			return nil, err
		}
	}
	one.cursor, one.plain = t.at, out.Bytes()
	one.packed = sync.OnceValues(func() ([]byte, error) { return t.api.batches.packer.pack(one.plain) })
	to, ok := t.place()
	if one.to = to; ok && to != from {
		t.api.batches.add(t.selection, from, one)
	}
	return one, nil
}

// moveTo has the tail continue behind a batch of another one. The one that has made it is there, and may have decoded
// more, which it must not lose.
func (t *tail) moveTo(b *batch) {
	if t.events != nil {
		t.events.MoveTo(b.to.events)
		t.at = b.cursor
	}
	if t.steps != nil {
		t.steps.MoveTo(b.to.steps)
	}
}

// sendBatch sends a batch that begins where the tail was.
func (t *tail) sendBatch(b *batch) error {
	if len(b.plain) == 0 {
		return nil
	}
	if b.marked {
		t.marked()
	}
	return t.stream.sendBatch(b)
}

// place returns where the tail is. It is at no place while it has to read from where no other one may be.
func (t *tail) place() (at place, ok bool) {
	ok = true
	if t.events != nil {
		at.events, ok = t.events.Place()
	}
	if t.steps != nil {
		at.steps = t.steps.Place()
	}
	return at, ok
}

// encode encodes some of what follows, up to a place, and returns how long the expression took.
func (t *tail) encode(ctx context.Context, to place) (took time.Duration, err error) {
	if t.events != nil {
		versions, reached, err := t.events.ReadTo(ctx, tailBatch, to.events)
		if err != nil {
			return 0, err
		}
		if took, err = t.encodeVersions(ctx, versions); err != nil {
			return 0, err
		}
		if reached != "" {
			t.at = reached
		}
	}
	if t.steps != nil {
		steps, missed := t.steps.ReadTo(stepBatch, to.steps)
		if t.missed += missed; t.missed > 0 && t.query.Namespaces != nil {
			t.missed = 1 // they are of all namespaces
		}
		more, err := t.encodeSteps(ctx, steps)
		if took += more; err != nil {
			return 0, err
		}
	}
	return took, nil
}

func (t *tail) upToDate() bool {
	return (t.events == nil || t.events.UpToDate()) && (t.steps == nil || t.steps.UpToDate())
}

// untilTurn is the time until the next turn, at least a moment.
func (t *tail) untilTurn() time.Duration {
	now := time.Now().Add(t.phase)
	return tailInterval - now.Sub(now.Truncate(tailInterval))
}

// flush writes what is encoded, with a bookmark if Events are among it, or steps were missed. There is none for what
// others did: it would show when something happens in their namespaces.
func (t *tail) flush() error {
	if t.unmarked || t.missed > 0 {
		return t.mark()
	}
	return t.stream.flush()
}

// mark writes what is encoded, and a bookmark.
func (t *tail) mark() error {
	err := t.stream.bookmark(t.at, t.missed)
	t.marked()
	return errors.Join(err, t.stream.flush())
}

// marked notes that there is a bookmark behind all that was sent.
func (t *tail) marked() { t.due, t.unmarked, t.missed = time.Now().Add(quietPeriod), false, 0 }

// rest waits, and sends the bookmarks that are due. Its error is that of a write, or the cause of ctx.
func (t *tail) rest(ctx context.Context, d time.Duration) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !time.Now().Before(t.due) {
			if err := t.mark(); err != nil {
				return err
			}
		}
		if d <= 0 {
			return nil
		}
		pause := min(d, time.Until(t.due))
		if err := sleep.For(ctx, pause); err != nil {
			return err
		}
		d -= pause
	}
}

// encodeVersions encodes those that the query is about. Each has the cursor before all of them, since they are
// one step of the follower: a client that resumes within them gets some twice, and misses none. It returns how
// long the expression took.
func (t *tail) encodeVersions(ctx context.Context, versions []observer.Version) (took time.Duration, err error) {
	matching, took, err := matching(ctx, t.api, t.query, versions, func(v observer.Version) (string, func() *corev1.Event) {
		return v.Event.Namespace, func() *corev1.Event { return v.Event }
	})
	if err != nil || len(matching) == 0 {
		return took, err
	}
	prefix, err := itemPrefix(t.at, "event")
	if err != nil {
		return took, err
	}
	t.unmarked = true
	for _, v := range matching {
		item, err := t.api.encodings.encode(v.Event, func() any { return itemOf(v) })
		if err != nil {
			return took, err
		}
		t.out.sendItem(prefix, t.at, item)
	}
	return took, nil
}

// reader is the key of a step as it is encoded for those who are no operators.
type reader struct{ *trail.Step }

// encodeSteps encodes those that the query is about, and returns how long the expression took.
func (t *tail) encodeSteps(ctx context.Context, steps []*trail.Step) (took time.Duration, err error) {
	matching, took, err := matching(ctx, t.api, t.query, steps, func(step *trail.Step) (string, func() *corev1.Event) {
		return step.Namespace, func() *corev1.Event { return eventOf(step) }
	})
	if err != nil || len(matching) == 0 {
		return took, err
	}
	prefix, err := itemPrefix("", "step")
	if err != nil {
		return took, err
	}
	for _, step := range matching {
		var key, shown = any(step), step
		if !t.operator {
			hidden := withoutOperator(*step)
			key, shown = reader{step}, &hidden
		}
		item, err := t.api.encodings.encode(key, func() any { return stepOf(shown) })
		if err != nil {
			return took, err
		}
		t.out.sendItem(prefix, "", item)
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
	matched, took, err := a.matches.evaluate(ctx, q.caller, q.match, events)
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
