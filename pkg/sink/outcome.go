package sink

import (
	"slices"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// report reports outcomes to the ledger, to callbacks and to the log. The mutex must not be
// held, since callbacks may use the sink. It returns false if the worker was abandoned
// meanwhile.
func (w *worker) report(out []counter.Settled) bool {
	w.sink.count(out)
	w.sink.raiseTotals(w.series, out)
	if !isAwaited(out) && !slices.ContainsFunc(out, func(e counter.Settled) bool { return logReason(e.End, e.Acknowledged) != "" }) {
		return true
	}
	return w.callExternal(func() { w.sink.notify(out) })
}

// notify runs the callbacks, and logs. Both are external code.
func (s *Sink) notify(out []counter.Settled) {
	runCallbacks(out)
	for i := range out {
		s.errorLog.settled(out[i].Newest.Event, out[i].End, out[i].Acknowledged)
	}
}

// raiseTotals records the totals of clients that are counted (rule Names). The series is in work.
func (s *Sink) raiseTotals(p *pendingSeries, out []counter.Settled) {
	if s.journal == nil || p == nil {
		return
	}
	for i := range out {
		if object := out[i].End.Object; object != nil {
			out[i].Totals(func(client counter.Contributor, total uint64) {
				s.journal.Raise(p.counter.Namespace, p.counter.Digest(), counter.EventIDOf(object), client, total)
			})
		}
	}
}

// isAwaited reports whether one of the entries has a callback.
func isAwaited(out []counter.Settled) bool {
	return slices.ContainsFunc(out, func(e counter.Settled) bool { return e.Notify != nil })
}

// count reports outcomes to the ledger.
func (s *Sink) count(out []counter.Settled) {
	if len(out) == 0 {
		return
	}
	var weight, bytes int64
	for i := range out {
		e := &out[i]
		weight += e.Weight
		bytes += e.Bytes
		if e.End.Counted() {
			s.ledger.Add(occurrence.Created, occurrence.NoReason, e.Created)
			s.ledger.Add(e.Merged, occurrence.NoReason, e.Written)
			s.ledger.Add(occurrence.Replayed, occurrence.NoReason, e.Replayed)
			s.ledger.Add(occurrence.Found, occurrence.NoReason, e.Found)
			s.ledger.Add(occurrence.Dropped, occurrence.PatchForbidden, e.Forbidden)
		} else {
			s.ledger.Add(e.End.Outcome, e.End.Reason, e.Weight)
		}
	}
	if s.options.Trail != nil {
		s.trace(out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.bytes -= bytes
	s.total.occurrences -= weight
	for i := range out {
		s.leaveGeneration(out[i].Generation)
		if out[i].Owner != nil {
			s.fair.settle(out[i].Entry)
		}
		if out[i].Notify != nil {
			s.unacknowledged.remove(out[i].Sequence)
		}
	}
	s.freeBacklog()
}

// leaveGeneration records that an entry is no longer pending. The mutex must be held.
func (s *Sink) leaveGeneration(generation uint64) {
	if s.generations.leave(generation) {
		s.drained.Notify()
	}
}

// runCallbacks runs all callbacks, even if one of them ends the goroutine.
func runCallbacks(out []counter.Settled) {
	forEach(out, func(e *counter.Settled) {
		if e.Notify != nil {
			e.Notify(e.End)
		}
	})
}
