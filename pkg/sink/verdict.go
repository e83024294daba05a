package sink

import (
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// verdict is what the apiserver said of a namespace that is missing or being
// deleted. It holds for all that was there to be created when it was asked, and is
// the answer to whoever waits for one; what else has come since waits until it is
// time to ask again. The zero verdict is none.
type verdict struct {
	reason occurrence.Reason
	err    error
	upTo   uint64 // the last sequence at the time
	until  time.Time
}

func (v *verdict) isSpoken() bool { return v.reason != occurrence.NoReason }

// obey settles what a verdict on the namespace of a series holds for, and lets the
// rest wait. The mutex must be held.
func (s *Sink) obey(owed *series, v *verdict) []settled {
	upTo := max(v.upTo, owed.account.awaited()) // this is the answer
	out := owed.account.giveUp(upTo, v.reason, v.err)
	owed.retryAt, owed.obeys = v.until, true
	s.release(owed)
	return out
}
