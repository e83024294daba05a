package counter

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Succeeded reports that a write took effect, and the object of the answer.
func (c *Counter) Succeeded(r *Request, object *corev1.Event) []Settled {
	p := r.plan
	c.resolve()
	c.bare = false
	if p.base == nil {
		c.author.created(&c.pending[0])
	}
	o, marked := c.observe(object)
	c.observed, c.mustRead, c.exclusive, c.sent = o, false, !marked, plan{}
	switch {
	case marked:
	case o.meta.UID == "" || o.resourceVersion() == "":
		c.observed = nil // it cannot be recognized later
	default:
		// Admission has removed the annotations, so no other sink can find the object.
		o.contributors = p.contributors
	}
	return c.settleWrittenOn(o.meta, p.upTo, p.base == nil)
}

// Lost reports that the answer to a write does not show whether it took effect.
func (c *Counter) Lost(r *Request) { c.inDoubt, c.inDoubtBase = r.plan.upTo, r.plan.base }

// Unsent reports that a request has certainly not been sent: what no other write has carried may be
// withdrawn.
func (c *Counter) Unsent(r *Request) { c.carried = r.carried }

// resolve records that nothing is in doubt.
func (c *Counter) resolve() { c.inDoubt, c.inDoubtBase = 0, nil }

// Stale reports that the object exists, but not as it was last observed.
func (c *Counter) Stale() { c.mustRead = true }

// Gone reports that there is no object under the name. Entries that only change an object,
// and add nothing to the count, are dropped then.
func (c *Counter) Gone(err error) []Settled {
	nonce := c.nonce
	c.forget()
	c.suffix = 0
	switch {
	case c.inDoubtBase != nil:
		// If the patch in doubt took effect, it was deleted with the object.
		c.resolve()
	case c.inDoubt > 0:
		c.nonce = nonce // a create in doubt may still take effect under the name
	}
	if len(c.pending) == 0 {
		return nil
	}
	// An entry that adds nothing may still have a weight: of a client that has reported a
	// higher total before.
	p := c.plan(c.batch())
	if p.added > 0 {
		return nil
	}
	return c.Drop(p.upTo, occurrence.Refused, err)
}

// Read reports the object under the name. If it is foreign, the next request uses another
// name.
func (c *Counter) Read(object *corev1.Event) (out []Settled) {
	o, marked := c.observe(object)
	isOwn := !marked && c.restore(o)
	c.mustRead = false
	if !marked && !isOwn || !c.isPlausible(o) || !isOwn && !c.isObserved(o) && !c.describes(object) {
		if !c.mayHaveWritten(o, object) {
			c.resolve()
		}
		return c.abandon()
	}
	mine, found := find(o.contributors.sinks, c.instance)
	c.author.read(c.observed, o, mine, c.carried)
	// Once the object has changed, a write in doubt can no longer take effect.
	isOver := c.inDoubt > 0 && (c.inDoubtBase == nil || o.resourceVersion() != c.inDoubtBase.resourceVersion())
	uncertain := c.pushedOut(o, isOver)
	c.observed, c.exclusive = o, isOwn
	if found {
		out = append(c.settleWritten(min(mine, c.own()), c.carriedByCreate), c.settleFound(mine)...)
	} else {
		out = c.settleUncertain(uncertain)
	}
	if isOver {
		c.resolve()
	}
	return out
}

// own returns up to where the share of the contributor is known to be from writes of this
// process. If nobody else writes in its name, a write may have taken effect that is not in doubt:
// a client library or a proxy has sent it twice, and returned the second answer only.
func (c *Counter) own() uint64 {
	if c.journal == nil {
		return c.carried
	}
	return c.inDoubt
}

// byOthers returns the highest sequence that a write of another process may have carried (rule
// Sent), 0 if there is none.
func (c *Counter) byOthers() uint64 {
	switch {
	case c.adopted:
		return math.MaxUint64
	case c.journal != nil:
		return c.journal.Sent()
	default:
		return 0
	}
}

// mayHaveWritten reports whether the write in doubt may have changed an object that is foreign
// now. A patch applies to one UID. A create leaves an object that describes the series,
// whatever its annotations are now.
func (c *Counter) mayHaveWritten(o *observation, object *corev1.Event) bool {
	if c.inDoubtBase != nil {
		return c.inDoubtBase.id == o.id
	}
	return c.describes(object)
}

// restore reports whether an object without annotations was written by this instance alone, and
// sets its contributors. Nobody can guess a random name before there is an object.
func (c *Counter) restore(o *observation) bool {
	switch {
	case c.observed == nil && c.nonce != 0:
		o.contributors = c.sent.contributors
	case c.exclusive && c.isObserved(o):
		o.contributors = c.observed.contributors
		if c.sent.added > 0 && o.count >= c.sent.count {
			o.contributors = c.sent.contributors
		}
	default:
		return false
	}
	return true
}

// detach forgets an object that can be neither changed nor read. The next write creates
// another one.
func (c *Counter) detach() (out []Settled) {
	if c.nonce != 0 && c.observed == nil {
		// It exists, since nobody else could create it under a random name.
		meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: c.name()}
		out = c.settleWrittenOn(&corev1.Event{ObjectMeta: meta}, c.sent.upTo, true)
	} else {
		out = c.settleInDoubt()
	}
	c.resolve()
	c.forget()
	return out
}

// forget forgets the observed object, and its name if that is random.
func (c *Counter) forget() {
	c.observed, c.mustRead, c.nonce, c.exclusive, c.sent = nil, false, 0, false, plan{}
}

// isObserved reports whether an object is the one that was observed before.
func (c *Counter) isObserved(o *observation) bool {
	return c.observed != nil && c.observed.id == o.id
}

// describes reports whether the fields of an object are those of the series, not only its
// annotation. The message of a classic Event may differ, since the next patch changes it.
func (c *Counter) describes(object *corev1.Event) bool {
	switch {
	case c.keyed:
		return true // an object does not contain the key
	case object.EventTime.IsZero():
		// Readers would use the count of its series as that of the Event.
		return object.Series == nil && identity.OfCombined(object) == identity.OfCombined(c.Newest().Newest.Event)
	case c.combined:
		return identity.OfCombined(object) == c.digest
	default:
		return identity.Of(object) == c.digest
	}
}

// isPlausible reports whether the contribution of this instance to an object may be from a write
// in its name: its value is older than all pending entries, or that of an entry that a write may
// have carried, since writes end with an entry. Sequences cannot be guessed, so nobody can forge
// such a value for pending entries.
//
// An adopted counter does not know what the contributor has recorded and written since. So a
// value above all entries is plausible too.
func (c *Counter) isPlausible(o *observation) bool {
	mine, found := find(o.contributors.sinks, c.instance)
	last := c.Last()
	switch {
	case !found || mine < c.pending[0].Sequence:
		return true
	case c.adopted && mine > last:
		return mine-last <= maxAhead
	}
	_, ends := slices.BinarySearchFunc(c.pending, mine, func(e Entry, mine uint64) int { return cmp.Compare(e.Sequence, mine) })
	return (ends || slices.Contains(c.evicted, mine)) && mine <= max(c.carried, c.byOthers())
}

// abandon leaves the object under the name to others, with what is in doubt on it.
func (c *Counter) abandon() []Settled {
	out := c.settleInDoubt()
	c.resolve()
	c.nextName()
	return out
}

// nextName goes on to the next name, since the object under the current one is unusable.
func (c *Counter) nextName() {
	c.forget()
	c.bare = false
	c.suffix++
}

// pushedOut returns the highest sequence that the count of an object without a contribution of
// this instance may include, since that may have been pushed out (rule PushedOut): 0 if there is
// none. isOver: the write in doubt can no longer take effect.
func (c *Counter) pushedOut(o *observation, isOver bool) (upTo uint64) {
	if !o.contributors.mayHavePushedOut(c.instance) || c.isOlderThere(o) {
		return 0
	}
	switch base := c.inDoubtBase; {
	case isOver && base == nil && o.contributors.creator == c.instance, isOver && base != nil && o.id == base.id:
		upTo = c.inDoubt
	}
	return max(upTo, c.byOthers())
}

// isOlderThere reports whether an object has a contribution that is older than any which was made
// since the object was last observed. Contributions are removed oldest first.
func (c *Counter) isOlderThere(o *observation) bool {
	if !c.isObserved(o) {
		return false
	}
	return slices.ContainsFunc(c.observed.contributors.sinks, func(e contribution) bool {
		value, ok := find(o.contributors.sinks, e.contributor)
		return ok && value == e.value
	})
}

// Refused reports that the apiserver has refused a request, or the read of an update.
func (c *Counter) Refused(r *Request, wasRead bool, reason occurrence.Reason, err error) []Settled {
	if reason == occurrence.Invalid && !wasRead {
		switch {
		case c.omitMetadata():
			return nil
		case r.Kind != Create:
			// The object itself may be full or immutable, as a squatter can make it.
			return c.abandon()
		}
	}
	upTo := r.plan.upTo
	if wasRead {
		upTo = c.Last()
	}
	return c.Drop(upTo, reason, err)
}
