package pipeline

import (
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// Trail is told what becomes of each occurrence: by Ended, or by Decided and then Settled, once
// or in parts. An adopted one begins with Adopted. Each call takes the time of a short critical
// section, and is safe for use by many goroutines: the stages wait for it, and of their callers
// those whose occurrence ends at once. What it is given is shared, and must not be changed.
type Trail interface {
	sink.Trail
	// Ended reports an occurrence that has settled before a decision: a rule has filtered it,
	// no queue had a place for it, the correlator has dropped it, or the pipeline has ended.
	// Its Event may be nil: see occurrence.Occurrence.WithEvent.
	Ended(o *occurrence.Occurrence, s occurrence.Settlement)
	// Decided reports the decision on an occurrence that goes to the sink.
	Decided(o *occurrence.Occurrence, d correlator.Decision)
}

// newLedger returns a ledger that reports to a trail, which may be nil.
func newLedger(t Trail) *ledger.Ledger {
	l := ledger.New()
	if t != nil {
		l.OnSettle(t.Ended)
	}
	return l
}
