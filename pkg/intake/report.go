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

// report is one occurrence of a posted name, from its request until its outcome.
type report struct {
	key        key
	event      *corev1.Event // of the resulting view; never changed
	occurrence *occurrence.Occurrence
	origin     *corev1.Event // of the resulting view
	post       bool          // from a POST
	creates    bool          // from an update of a name without a view
	unnamed    bool          // the name was generated
	term       int64         // of the request

	// number is set by names.begin.
	number int64
	// begun is the view until the outcome is known, nil before somebody asks for it.
	// Guarded by the mutex of names.
	begun *view
	// fresh and filtered are set by follows. fresh is the part of the total that no report
	// before has reported. filtered is the part of the total that rules have filtered, guarded by
	// the mutex of names once the report is recorded.
	fresh, filtered int64
	// held are the bytes of names.pending that it has acquired for flow.
	held int64
	flow flow

	ended      atomic.Bool
	done       chan struct{}
	settlement occurrence.Settlement // after done, if it was not deferred
	accepted   bool                  // after done: it was deferred or filtered
	view       *view                 // after done, if it was counted or accepted
}

// newReport returns the report of a request that changes a name in state now. Its
// weight is the difference to the settled total. So nothing is lost if an earlier
// pending report is dropped, and nothing is counted twice if that is written
// (docs/counting.md, rule 2).
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

// follows sets what follows from the newest view of the name, nil if there is none: right before
// the report is recorded, since others may have been since it was made.
func (r *report) follows(before *view) {
	o := r.occurrence
	switch {
	case before == nil:
		r.fresh = o.Total
	case !before.gone:
		r.fresh, r.filtered = max(0, o.Total-before.total), before.filtered
	case o.Total > before.filtered:
		// It is reported again, without what was filtered of it.
		r.fresh, r.filtered = o.Total-before.filtered, before.filtered
		o.Weight = r.fresh
	default:
		r.fresh = o.Total // the client has begun anew
	}
}

// isVain reports whether a report changes an Event that is not stored, since rules have filtered
// everything that it would count.
func (r *report) isVain() bool { return r.occurrence.Weight == 0 && r.filtered == r.occurrence.Total }

// userOf is the name of the authenticated user of a request.
func userOf(ctx context.Context) string {
	if caller, ok := request.UserFrom(ctx); ok {
		return caller.GetName()
	}
	return ""
}

// repeats reports whether another report of the same name has the same content and the
// same user. For another user the name already exists.
func (r *report) repeats(other *report) bool {
	return r.sameCaller(other) && apiequality.Semantic.DeepEqual(r.occurrence.Event, other.occurrence.Event)
}

// sameCaller reports whether two reports are of the same user with the same rights.
func (r *report) sameCaller(other *report) bool {
	a, b := r.occurrence, other.occurrence
	return a.User == b.User && a.CreateOnly == b.CreateOnly
}

// raises reports whether a POST raises the total of the series that another report of
// the same user has begun.
func (r *report) raises(other *report) bool {
	return r.sameCaller(other) && r.occurrence.Total > other.occurrence.Total &&
		identity.Of(r.occurrence.Event) == identity.Of(other.occurrence.Identified())
}

// record adds a report to the pipeline and unlocks its name. It is dropped instead if
// this process is no longer the leader.
func (i *Intake) record(ctx context.Context, r *report) {
	term := callOf(ctx).term
	r.term = term.Number
	i.names.begin(r)
	defer i.names.unlock(r.key)
	if !term.lasts() {
		i.settle(r, occurrence.Settlement{Outcome: occurrence.Dropped, Err: errTermEnded})
		return
	}
	r.occurrence.Settled = func(s occurrence.Settlement) { i.settle(r, s) }
	r.occurrence.Deferred = func() { i.deferred(r) }
	defer func() {
		if p := recover(); p != nil {
			// Otherwise the report stays pending forever.
			i.settle(r, occurrence.Settlement{
				Outcome: occurrence.Dropped,
				Err:     apierrors.NewInternalError(errors.New("recording panicked")),
			})
			panic(p)
		}
	}()
	if i.filters(r) {
		return
	}
	i.options.Record(r.occurrence)
}

// filters reports whether a rule drops a report, or has dropped all that it is about. Then it has
// ended. Otherwise it sets the budget of its rule.
//
// A filtered report accounts for what is fresh in it. The reports before it that are pending
// account for the rest, and the next one continues from its total: nothing of it is added to a
// count later.
func (i *Intake) filters(r *report) bool {
	if i.options.Rules == nil {
		return false
	}
	o := r.occurrence
	var dryRun func(rule, action string)
	if i.options.DryRun != nil {
		dryRun = func(rule, action string) { i.options.DryRun(o, r.fresh, rule, action) }
	}
	drop, budget := i.options.Rules(o.Event, r.fresh, dryRun)
	switch {
	case drop != occurrence.NoReason:
		o.Weight = r.fresh
		i.options.Filter(o, drop)
	case r.isVain():
		i.deferred(r)
	default:
		o.Budget = budget
		return false
	}
	return true
}

// settle is called from the pipeline: it must not block.
func (i *Intake) settle(r *report, s occurrence.Settlement) {
	if r.ended.Swap(true) {
		return
	}
	r.settlement = s
	switch {
	case s.Counted():
		r.view = r.newView(s.Object)
		i.names.settled(r, r.view)
	case s.Outcome == occurrence.Filtered:
		r.accepted, r.view = true, i.names.filtered(r)
	default:
		i.names.dropped(r, gone(s))
	}
	close(r.done)
}

// deferred ends a report that will be written later. Its outcome is not reported; the
// client continues as if it were written. It must not block.
func (i *Intake) deferred(r *report) {
	if r.ended.Swap(true) {
		return
	}
	r.accepted, r.view = true, i.names.accepted(r)
	close(r.done)
}

// wait returns when the report has settled or is deferred. It fails if the context ends
// first; the report stays pending. A batch waits for many reports with one context: those
// that have ended do not fail when it has ended too.
func (r *report) wait(ctx context.Context) error {
	releaseSeat(ctx)
	if r.hasEnded() { // the context needs no timer
		return nil
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if !r.hasEnded() {
			return timeoutError(ctx.Err())
		}
	}
	return nil
}

// hasEnded reports whether wait returns at once.
func (r *report) hasEnded() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// result is the response to a report that has ended. Nobody may change it.
func (r *report) result(ctx context.Context) (*corev1.Event, error) {
	if r.view == nil {
		if errors.Is(r.settlement.Err, errTermEnded) {
			callOf(ctx).termEnded.Store(true)
		}
		return nil, notWritten(r)
	}
	if r.accepted {
		callOf(ctx).accepted.Store(true)
	}
	return r.view.event, nil
}

func timeoutError(err error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", err), 0)
}
