package sink

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// Trail is told what becomes of what is pending. Each call takes the time of a short critical
// section, and is safe for use by many goroutines. What it is given is shared, and must not be
// changed.
type Trail interface {
	// Adopted reports what another process has left. All else was given to Sink.Add.
	Adopted(p Part)
	// Settled reports a part that has settled.
	Settled(p Part, s occurrence.Settlement)
}

// Part is a number of occurrences of one series and one tenant.
type Part struct {
	// Event is the one that they are counted on, as of the newest of them.
	Event *corev1.Event
	// User has reported the oldest.
	User string
	// Weight is their number. It is 0 if they changed something other than the count.
	Weight int64
	// Writes is 1 for one of the parts that a write has settled together, 0 for all others.
	Writes int64
}

func partOf(e *counter.Entry, weight int64) Part {
	return Part{Event: e.Newest.Event, User: e.User(), Weight: weight}
}

// refuse settles an occurrence that is not added.
func (s *Sink) refuse(o *occurrence.Occurrence, t *occurrence.Target, end occurrence.Settlement) {
	s.ledger.Add(end.Outcome, end.Reason, o.Weight)
	if s.options.Trail != nil {
		s.options.Trail.Settled(Part{Event: t.Event, User: o.User, Weight: o.Weight}, end)
	}
	if o.Settled != nil {
		o.Settled(end)
	}
}

// trace reports outcomes to the trail, in the parts in which count reports them to the ledger.
func (s *Sink) trace(out []counter.Settled) {
	written := false // the entries of a series that have settled as counted share one write
	for i := range out {
		e := &out[i]
		if !e.End.Counted() {
			s.options.Trail.Settled(partOf(e.Entry, e.Weight), e.End)
			continue
		}
		writes := int64(0)
		if !written && isWritten(e.End.Outcome) {
			writes, written = 1, true
		}
		for _, p := range [...]struct {
			outcome occurrence.Outcome
			reason  occurrence.Reason
			weight  int64
		}{
			{occurrence.Created, occurrence.NoReason, e.Created},
			{e.Merged, occurrence.NoReason, e.Written},
			{occurrence.Replayed, occurrence.NoReason, e.Replayed},
			{occurrence.Found, occurrence.NoReason, e.Found},
			{occurrence.Dropped, occurrence.PatchForbidden, e.Forbidden},
		} {
			if p.weight == 0 && !(writes > 0 && p.outcome == e.End.Outcome) {
				continue
			}
			part := partOf(e.Entry, p.weight)
			part.Writes, writes = writes, 0
			end := e.End
			end.Outcome, end.Reason = p.outcome, p.reason
			s.options.Trail.Settled(part, end)
		}
	}
}

// isWritten reports whether a write has settled an entry: no other process has counted it.
func isWritten(o occurrence.Outcome) bool {
	return o == occurrence.Created || o == occurrence.Merged || o == occurrence.Aggregated
}

// traceAdopted reports what was adopted. The mutex must not be held.
func (s *Sink) traceAdopted(parts []Part) {
	for _, p := range parts {
		s.options.Trail.Adopted(p)
	}
}
