package sink

import (
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// refusal is the cached answer of the apiserver that a namespace is missing or
// terminating. It applies to everything that was pending for creation when the request
// was sent, and to callers that wait for an outcome. Later occurrences wait until the
// next request is allowed. The zero value is no refusal.
type refusal struct {
	reason occurrence.Reason
	err    error
	upTo   uint64 // the last sequence at the time
	until  time.Time
}

func (v *refusal) isSet() bool { return v.reason != occurrence.NoReason }

// applyRefusal settles the occurrences of a series to which the refusal of its namespace
// applies, and delays the others. The mutex must be held.
func (s *Sink) applyRefusal(owed *series, v *refusal) []settled {
	upTo := max(v.upTo, owed.account.awaited()) // this is the answer
	out := owed.account.giveUp(upTo, v.reason, v.err)
	owed.retryAt, owed.refused = v.until, true
	s.release(owed)
	return out
}
