package sink

import (
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"

	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// applyRefusal settles the occurrences of a series to which the refusal of its namespace
// applies, and delays the others. It applies to everything that was pending for creation
// when the request was sent, and to callers that wait for an outcome. The mutex must be
// held.
func (s *Sink) applyRefusal(owed *series, v scheduler.Refusal) []counter.Settled {
	upTo := max(v.UpTo, owed.counter.Awaited()) // this is the answer
	out := owed.counter.Drop(upTo, v.Reason, v.Err)
	owed.retryAt, owed.refused = v.Until, true
	s.release(owed)
	return out
}
