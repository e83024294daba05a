package intake

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/internal/occurrence"
)

// report is one occurrence on its way, from a request that has the turn at its
// name. The turn ends when it settles, or is deferred.
type report struct {
	key        key
	event      *corev1.Event // the view to be; never changed
	occurrence *occurrence.Occurrence
	origin     *corev1.Event // of the view to be
	unnamed    bool          // the client has posted no name: it was generated
	term       int64         // of the request

	ended      atomic.Bool
	done       chan struct{}
	settlement occurrence.Settlement // after done, if it was not deferred
	deferred   bool                  // after done: it will be written later
	view       *view                 // after done, if it was counted or deferred
}

// newReport makes the occurrence by which the caller of a request raises its total
// at a name from old, which is nil for a name without a view.
func newReport(ctx context.Context, api occurrence.API, k key, event *corev1.Event, old *view) *report {
	total := totalOf(event)
	o := &occurrence.Occurrence{
		Event:    reported(event),
		API:      api,
		Weight:   total,
		Client:   k.name,
		Total:    total,
		Recorded: time.Now(),
	}
	if caller, ok := request.UserFrom(ctx); ok {
		o.User = caller.GetName()
	}
	r := &report{key: k, event: event, occurrence: o, origin: o.Event, done: make(chan struct{})}
	if old == nil {
		return r
	}
	r.origin = old.origin
	asBegun(o.Event, old.origin)
	o.Begun = old.origin
	o.Weight = max(0, total-old.total)
	o.Total = max(total, old.total)
	return r
}

// repeats tells whether another report of the same name says the same, for the same
// user: to another one the name is taken.
func (r *report) repeats(other *report) bool {
	a, b := r.occurrence, other.occurrence
	return a.User == b.User && apiequality.Semantic.DeepEqual(a.Event, b.Event)
}

// send records a report, whose turn it takes over, and waits for its end. One that
// comes when this process leads no more is not recorded.
func (i *Intake) send(ctx context.Context, r *report) error {
	r.term = termOf(ctx)
	if !mayRecord(ctx) {
		i.settle(r, occurrence.Settlement{Outcome: occurrence.Dropped, Err: errTurnedAway})
		return nil
	}
	r.occurrence.Settled = func(s occurrence.Settlement) { i.settle(r, s) }
	r.occurrence.Deferred = func() { i.deferred(r) }
	func() {
		defer func() {
			if p := recover(); p != nil {
				// The name must not stay taken for good.
				i.settle(r, occurrence.Settlement{
					Outcome: occurrence.Dropped,
					Err:     apierrors.NewInternalError(errors.New("recording panicked")),
				})
				panic(p)
			}
		}()
		i.options.Record(r.occurrence)
	}()
	return r.wait(ctx)
}

// settle is called from the pipeline: it must not block.
func (i *Intake) settle(r *report, s occurrence.Settlement) {
	if r.ended.Swap(true) {
		return
	}
	r.settlement = s
	switch {
	case s.Counted():
		r.view = r.newView(r.event, s.Object)
		i.names.release(r.key, r.view)
	case gone(s):
		i.names.forget(r.key)
		fallthrough
	default:
		i.names.release(r.key, nil)
	}
	close(r.done)
}

// deferred is settle for a report that will be written later, of which nothing
// more is heard. The client goes on as if it had been written.
func (i *Intake) deferred(r *report) {
	if r.ended.Swap(true) {
		return
	}
	r.deferred = true
	r.view = r.newView(changed(r.event), nil)
	i.names.release(r.key, r.view)
	close(r.done)
}

// wait returns when the report has settled or is deferred; its error is that of
// the context, in which case the report goes on.
func (r *report) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return timeoutError(ctx.Err())
	}
}

// result is what a client is told of a report that has ended.
func (r *report) result(ctx context.Context) (*corev1.Event, error) {
	if r.view == nil {
		turnAway(ctx, r.settlement)
		return nil, refusal(r)
	}
	if r.deferred {
		accept(ctx)
	}
	return r.view.event.DeepCopy(), nil
}

func timeoutError(err error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", err), 0)
}
