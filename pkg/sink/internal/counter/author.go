package counter

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
)

// At the apiserver, a user that may only create Events changes no Event of another user. Here
// its occurrences can be part of one, since they have the same identity. Such an entry is
// limited: it adds at most 1 for each posted name, moves the last-seen time by the clock of
// this process, and changes nothing else. It is not limited on an Event that is created with
// its own content, nor on one that the same user is known to have created.

var errMayNotPatch = errors.New("the Event was created by another user, and the reporter may not patch it")

// author is the user who created the observed Event, as far as this process knows.
// The zero value is nobody.
type author struct {
	user  uint64 // its hash
	known bool
	// createOnly: the user could not change Events then. Others need not be known: what they
	// report is not limited.
	createOnly bool
	// creating is the user of the content in the creates that may have taken effect. Only
	// they have written a sequence of this instance that is at least since; 0 if there are
	// none.
	creating     string
	creatingOnly bool // createOnly of the last of them
	since        uint64
}

// begin records that a create with the content of an entry is about to be sent. It carries the
// sequence of the entry and later ones. Earlier writes have carried sequences up to carried.
func (a *author) begin(e *Entry, carried uint64) {
	switch {
	case a.since == 0:
		a.creating, a.since = e.user, e.Sequence
	case a.creating != e.user:
		// A sequence that both carried does not show which of them took effect.
		a.creating, a.since = e.user, max(e.Sequence, carried+1)
	}
	a.creatingOnly = e.createOnly
}

// created records that the create with the content of an entry took effect.
func (a *author) created(e *Entry) { a.set(e.user, e.createOnly) }

func (a *author) set(user string, createOnly bool) {
	*a = author{user: hashOf(user), known: true, createOnly: createOnly}
}

// read records an Event that was read. before is the one that was observed before, nil if there
// was none; sequence is that of this instance in the Event, 0 if there is none.
func (a *author) read(before, o *observation, sequence, carried uint64) {
	switch {
	case a.known && before != nil && before.id == o.id:
	case a.since > 0 && a.since <= sequence && sequence <= carried:
		a.set(a.creating, a.creatingOnly)
	default:
		*a = author{}
	}
	a.creating, a.creatingOnly, a.since = "", false, 0
}

// limits reports whether an entry may only add 1 for each posted name. If nothing is observed,
// the Event is created with the content of the first entry of the batch.
func (c *Counter) limits(e, first *Entry) bool {
	switch {
	case !e.createOnly:
		return false
	case e.limited && e.Sequence <= c.inDoubt:
		return true // or what settles would not be what was written
	case c.observed == nil:
		return e.user != first.user
	default:
		return !c.author.known || hashOf(e.user) != c.author.user
	}
}

// limitTo1 returns the part of a claim that a limited entry adds.
func limitTo1(c Claim) Claim {
	c.Total, c.Weight = min(c.Total, 1), min(c.Weight, 1)
	return c
}

// patchForbidden returns the outcome of a limited entry that added nothing.
func (c *Counter) patchForbidden() occurrence.Settlement {
	return occurrence.Settlement{
		Outcome: occurrence.Dropped,
		Reason:  occurrence.PatchForbidden,
		Err:     apierrors.NewForbidden(corev1.Resource("events"), c.name(), errMayNotPatch),
	}
}
