package occurrence

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

// Target is the Event that an occurrence is to be counted on, as a correlator
// decided.
type Target struct {
	// Digest identifies the series that the Event stands for.
	Digest identity.Digest
	// Event is what is stored if there is no such Event yet, and whose message,
	// time, labels and annotations an existing one takes on. It must not be
	// changed afterwards.
	Event *corev1.Event
	// Combined is set if the Event is its group's combined one.
	Combined bool
}

// Merged is the outcome of an occurrence that is counted on the target without
// creating it.
func (t *Target) Merged() Outcome {
	if t.Combined {
		return Aggregated
	}
	return Merged
}
