package sink

import (
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// applyRefusal settles the occurrences of a series to which the refusal of its namespace
// applies, and delays the others. It applies to everything that was pending for creation
// when the request was sent, and to callers that wait for an outcome. The mutex must be
// held.
func (s *Sink) applyRefusal(p *pendingSeries, v scheduler.Refusal) []counter.Settled {
	upTo := max(v.UpTo, p.counter.Awaited()) // this is the answer
	if p.adopted != nil {
		upTo = p.adopted.last // another sink has numbered it
	}
	out := p.counter.Drop(upTo, v.Reason, v.Err)
	p.retryAt, p.refused = v.Until, true
	s.release(p)
	return out
}
