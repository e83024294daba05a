package counter

import (
	"cmp"
	"slices"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// succeeded takes the answer to a write that took effect.
func (a *Counter) Succeeded(r *Request, object *corev1.Event) []Settled {
	p := r.plan
	a.resolve()
	a.bare = false
	if p.base == nil {
		a.author.created(a.pending[0].user)
	}
	o, marked := a.observe(object)
	a.observed, a.mustRead, a.exclusive, a.sent = o, false, !marked, plan{}
	switch {
	case marked:
	case o.meta.UID == "" || o.resourceVersion() == "":
		a.observed = nil // it cannot be told from others
	default:
		// Admission has removed our annotations. From now on nobody but us takes
		// the object for the Event of the series.
		o.contributors = p.contributors
	}
	return a.settleWrittenOn(o.meta, p.upTo, p.base == nil)
}

// lost takes note that a write got no answer that says whether it took effect.
func (a *Counter) Lost(r *Request) { a.inDoubt, a.inDoubtBase = r.plan.upTo, r.plan.base }

// believe takes note that nothing is in doubt any more.
func (a *Counter) resolve() { a.inDoubt, a.inDoubtBase = 0, nil }

// stale takes note that the object exists, but not as it was last observed.
func (a *Counter) Stale() { a.mustRead = true }

// gone takes note that there is no object under the name. What only wanted to
// change it, without counting anything, ends there.
func (a *Counter) Gone(err error) []Settled {
	nonce := a.nonce
	a.forget()
	a.suffix = 0
	switch {
	case a.inDoubtBase != nil:
		// What was in doubt has gone with the object, if it had taken effect.
		a.resolve()
	case a.inDoubt > 0:
		a.nonce = nonce // what is in doubt may still be created under the name
	}
	if len(a.pending) == 0 {
		return nil
	}
	// What counts nothing may still have a weight: of a client that has reported a
	// higher total before.
	p := a.plan(a.batch())
	if p.added > 0 {
		return nil
	}
	return a.Drop(p.upTo, occurrence.Refused, err)
}

// read takes the object under the name, which may be foreign: then another name
// is to be tried.
func (a *Counter) Read(object *corev1.Event) (out []Settled) {
	o, marked := a.observe(object)
	isOwn := !marked && a.restore(o)
	a.mustRead = false
	if !marked && !isOwn || !a.isPlausible(o) || !isOwn && !a.isObserved(o) && !a.describes(object) {
		if !a.mayHaveWritten(o, object) {
			a.resolve()
		}
		return a.abandon()
	}
	mine, found := find(o.contributors.sinks, a.instance)
	a.author.read(a.observed, o, mine, a.carried)
	a.observed, a.exclusive = o, isOwn
	if found {
		// Not only what is in doubt: a client or a proxy may have sent a write
		// twice and have told us of the second answer only.
		out = a.settleWritten(mine, a.carriedByCreate)
	}
	if a.inDoubt > 0 && (a.inDoubtBase == nil || o.resourceVersion() != a.inDoubtBase.resourceVersion()) {
		// The write in doubt can no longer take effect, so what is read is the
		// whole truth, unless our entry may have been pushed out.
		if !found && a.mayBePushedOut(o) {
			out = append(out, a.settleInDoubt()...)
		}
		a.resolve()
	}
	return out
}

// mayHave tells whether what is in doubt may have been written to an object that is
// left as foreign. A patch names the object that it is based on. A create leaves one
// that describes the series, whatever its annotations say by now.
func (a *Counter) mayHaveWritten(o *observation, object *corev1.Event) bool {
	if a.inDoubtBase != nil {
		return a.inDoubtBase.meta.UID == o.meta.UID
	}
	return a.describes(object)
}

// recall tells whether an object without our annotations is one that only we have
// written, and what they would say. Nobody else can know a name that was drawn
// before there is an object.
func (a *Counter) restore(o *observation) bool {
	switch {
	case a.observed == nil && a.nonce != 0:
		o.contributors = a.sent.contributors
	case a.exclusive && a.isObserved(o):
		o.contributors = a.observed.contributors
		if a.sent.added > 0 && o.count >= a.sent.count {
			o.contributors = a.sent.contributors
		}
	default:
		return false
	}
	return true
}

// part lets go of an object that cannot be changed, nor even read: what follows
// goes into another one. It returns what settles with that.
func (a *Counter) detach() (out []Settled) {
	if a.nonce != 0 && a.observed == nil {
		// It is there, and only we knew the name.
		meta := metav1.ObjectMeta{Namespace: a.Namespace, Name: a.name()}
		out = a.settleWrittenOn(&corev1.Event{ObjectMeta: meta}, a.sent.upTo, true)
	} else {
		out = a.settleInDoubt()
	}
	a.resolve()
	a.forget()
	return out
}

// forget forgets the object that was observed, and its name if that was drawn.
func (a *Counter) forget() {
	a.observed, a.mustRead, a.nonce, a.exclusive, a.sent = nil, false, 0, false, plan{}
}

// knows tells whether the object is the one that was observed before.
func (a *Counter) isObserved(o *observation) bool {
	return a.observed != nil && a.observed.meta.UID == o.meta.UID
}

// describes tells whether an object says what the series is about, and not only
// that it is its Event. The message of a classic Event may be another: the next
// patch changes it.
func (a *Counter) describes(object *corev1.Event) bool {
	switch {
	case a.keyed:
		return true // nobody knows the key of an object
	case object.EventTime.IsZero():
		// Readers would take the count of its series for the Event's.
		return object.Series == nil && identity.OfCombined(object) == identity.OfCombined(a.Newest().Newest.Event)
	case a.combined:
		return identity.OfCombined(object) == a.digest
	default:
		return identity.Of(object) == a.digest
	}
}

// isPlausible tells whether a write of this account may have left the instance's
// own share that an object has: one that is older than all that is pending, or
// that of a pending entry, as it is with them that writes end. Sequences can not be
// guessed, so nobody else can have the pending ones settled by such a share.
func (a *Counter) isPlausible(o *observation) bool {
	mine, found := find(o.contributors.sinks, a.instance)
	if !found || mine < a.pending[0].Sequence {
		return true
	}
	_, ends := slices.BinarySearchFunc(a.pending, mine, func(e Entry, mine uint64) int { return cmp.Compare(e.Sequence, mine) })
	return ends && mine <= a.carried
}

// leave leaves the object under the name to others, and what may have been written
// to it.
func (a *Counter) abandon() []Settled {
	out := a.settleInDoubt()
	a.resolve()
	a.nextName()
	return out
}

// nextName is for when the object under the name is of no use.
func (a *Counter) nextName() {
	a.forget()
	a.bare = false
	a.suffix++
}

// mayBePushedOut tells whether the write in doubt may have taken effect on an
// object that has no entry of ours. Entries are pushed out oldest first.
func (a *Counter) mayBePushedOut(o *observation) bool {
	if len(o.contributors.sinks) < maxSinks {
		return false
	}
	if a.inDoubtBase == nil {
		return o.contributors.creator == a.instance
	}
	if o.meta.UID != a.inDoubtBase.meta.UID {
		return false // it was a patch of another object
	}
	for _, e := range a.inDoubtBase.contributors.sinks {
		if value, ok := find(o.contributors.sinks, e.contributor); ok && value == e.value {
			return false // this one is older than ours would be
		}
	}
	return true
}

// refused takes note that the apiserver has refused a request, or the read that an update
// begins with.
func (a *Counter) Refused(r *Request, wasRead bool, reason occurrence.Reason, err error) []Settled {
	if reason == occurrence.Invalid && !wasRead {
		switch {
		case a.omitMetadata():
			return nil
		case r.Kind != Create:
			// It may be the object that has no room for more, or that nothing may
			// change: whoever made it can have seen to that.
			return a.abandon()
		}
	}
	upTo := r.plan.upTo
	if wasRead {
		upTo = a.Last()
	}
	return a.Drop(upTo, reason, err)
}
