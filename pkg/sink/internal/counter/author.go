package counter

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
)

// At the apiserver, a user that may only create Events changes no Event of
// another user. Here its Events can be counted on one, since they have the same
// identity. Such an entry is limited: it adds at most 1 for each posted name, moves
// the last-seen time by our clock, and changes nothing else. It is not limited on
// an Event that is created with its own content, nor on one that this process knows
// the same user to have begun.

var errMayNotPatch = errors.New("it is counted on an Event that others began, which its reporter may not patch")

// author is the user who began the observed Event, as far as this process knows.
// The zero value is nobody.
type author struct {
	user  string
	known bool
	// creating is the user whose content the creates carried that are not known to
	// have failed. Only they have written a sequence of ours that is not below
	// since; 0 if there are none.
	creating string
	since    uint64
}

// begin takes note that a create is about to be sent, with the content of a user.
// It carries what has the given sequence and comes after it; earlier writes carried
// what came up to another.
func (a *author) begin(user string, oldest, carried uint64) {
	switch {
	case a.since == 0:
		a.creating, a.since = user, oldest
	case a.creating != user:
		// What both have carried does not tell which of them took effect.
		a.creating, a.since = user, max(oldest, carried+1)
	}
}

// created takes note that the create took effect.
func (a *author) created(user string) { *a = author{user: user, known: true} }

// read takes note of an Event that was read, which may be another than the one that
// was observed before, nil if there was none. The sequence is the one that we have there, 0 if none.
func (a *author) read(before, o *observation, sequence, carried uint64) {
	switch {
	case a.known && before != nil && before.meta.UID == o.meta.UID:
	case a.since > 0 && a.since <= sequence && sequence <= carried:
		a.user, a.known = a.creating, true
	default:
		a.user, a.known = "", false
	}
	a.creating, a.since = "", 0
}

// limits tells whether an entry may only add 1 for each posted name. The Event is
// created with the content of the batch's first entry if nothing is observed.
func (a *Counter) limits(e, first *Entry) bool {
	switch {
	case !e.createOnly:
		return false
	case e.limited && e.Sequence <= a.inDoubt:
		return true // or what settles would not be what was written
	case a.observed == nil:
		return e.user != first.user
	default:
		return !a.author.known || e.user != a.author.user
	}
}

// limitTo1 is what a claim counts of an entry that is limited.
func limitTo1(c Claim) Claim {
	c.total, c.weight = min(c.total, 1), min(c.weight, 1)
	return c
}

// patchForbidden is the end of a limited entry of which nothing was counted.
func (a *Counter) patchForbidden() occurrence.Settlement {
	return occurrence.Settlement{
		Outcome: occurrence.Dropped,
		Reason:  occurrence.PatchForbidden,
		Err:     apierrors.NewForbidden(corev1.Resource("events"), a.name(), errMayNotPatch),
	}
}
