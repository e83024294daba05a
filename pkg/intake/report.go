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

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// report is one occurrence on its way, from a request that had the turn at its
// name.
type report struct {
	key        key
	event      *corev1.Event // the view to be; never changed
	occurrence *occurrence.Occurrence
	origin     *corev1.Event // of the view to be
	post       bool          // it is from a POST
	creates    bool          // it is from an update of a name without a view
	unnamed    bool          // the client has posted no name: it was generated
	term       int64         // of the request

	// number and begun are set when it is about to be recorded. begun is the view
	// that follows from it until its outcome is known; guarded by the mutex of names.
	number int64
	begun  *view
	// held is what it holds of names.open, as a report of the flow.
	held int64
	flow flow

	ended      atomic.Bool
	done       chan struct{}
	settlement occurrence.Settlement // after done, if it was not deferred
	deferred   bool                  // after done: it will be written later
	view       *view                 // after done, if it was counted or deferred
}

// newReport makes the occurrence by which the caller of a request raises its total
// at a name of which now is known. It reports all that lies above what has settled:
// if an earlier report that has not is dropped, nothing is lost, and if it is
// written, nothing is counted twice (docs/counting.md, rule 2).
func newReport(ctx context.Context, api occurrence.API, k key, event *corev1.Event, now known) *report {
	total := totalOf(event)
	o := &occurrence.Occurrence{
		Event:    reported(event),
		API:      api,
		Weight:   total,
		Client:   k.name,
		Total:    total,
		Recorded: time.Now(),
		User:     userOf(ctx),
	}
	r := &report{key: k, event: event, occurrence: o, origin: o.Event, done: make(chan struct{})}
	old := now.view
	if old == nil {
		return r
	}
	r.origin = old.origin
	asBegun(o.Event, old.origin)
	o.Begun = old.origin
	o.Total = max(total, old.total)
	o.Weight = 0
	if total > old.total {
		o.Weight = total - now.settled
	}
	return r
}

// userOf is the name of the user that a request was authenticated as.
func userOf(ctx context.Context) string {
	if caller, ok := request.UserFrom(ctx); ok {
		return caller.GetName()
	}
	return ""
}

// repeats tells whether another report of the same name says the same, for the same
// user: to another one the name is taken.
func (r *report) repeats(other *report) bool {
	return r.sameCaller(other) && apiequality.Semantic.DeepEqual(r.occurrence.Event, other.occurrence.Event)
}

// sameCaller tells whether two reports are of the same user with the same rights.
func (r *report) sameCaller(other *report) bool {
	a, b := r.occurrence, other.occurrence
	return a.User == b.User && a.CreateOnly == b.CreateOnly
}

// raises tells whether a POST reports more of the series that another report of the
// same user has begun.
func (r *report) raises(other *report) bool {
	return r.sameCaller(other) && r.occurrence.Total > other.occurrence.Total &&
		identity.Of(r.occurrence.Event) == identity.Of(other.occurrence.Identified())
}

// record hands a report to the pipeline, with which the turn that it takes over
// ends. One that comes when this process leads no more is not recorded.
func (i *Intake) record(ctx context.Context, r *report) {
	r.term = termOf(ctx)
	i.names.begin(r)
	defer i.names.release(r.key)
	if !mayRecord(ctx) {
		i.settle(r, occurrence.Settlement{Outcome: occurrence.Dropped, Err: errTurnedAway})
		return
	}
	r.occurrence.Settled = func(s occurrence.Settlement) { i.settle(r, s) }
	r.occurrence.Deferred = func() { i.deferred(r) }
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
}

// settle is called from the pipeline: it must not block.
func (i *Intake) settle(r *report, s occurrence.Settlement) {
	if r.ended.Swap(true) {
		return
	}
	r.settlement = s
	if s.Counted() {
		r.view = r.newView(s.Object)
		i.names.settled(r, r.view)
	} else {
		i.names.dropped(r, gone(s))
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
	r.view = i.names.deferred(r)
	close(r.done)
}

// wait returns when the report has settled or is deferred; its error is that of
// the context, in which case the report goes on.
func (r *report) wait(ctx context.Context) error {
	leaveSeat(ctx)
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
		callOf(ctx).accepted.Store(true)
	}
	return r.view.event.DeepCopy(), nil
}

func timeoutError(err error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", err), 0)
}
