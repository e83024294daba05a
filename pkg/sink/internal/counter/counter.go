// Package counter computes what the count of a stored Event should be, and the requests that
// make it so.
//
// The count is a grow-only counter (G-counter). Sink instances and clients are its
// contributors: an annotation of the Event holds, for each of them, up to where its
// occurrences are in the count. So a counter finds out from the stored Event whether a write
// took effect whose answer was lost, and several sinks can write the same Event.
// docs/counting.md states the rules and their proofs.
//
// A Counter holds the pending occurrences of one series for one sink instance. Its owner
// calls Begin, Draft.Plan and Commit for the next request, sends that, and reports the answer
// with Succeeded, Read, Stale, Gone, Refused or Lost. Each of them returns the entries that
// have settled: every entry settles exactly once.
//
// A Counter does no I/O, starts no goroutine and takes no lock. One goroutine at a time may
// use it, with one exception: while a worker runs Draft.Plan, others may call Add and
// Absorbs, and read Pending's newest entry.
package counter

import (
	"crypto/rand"
	"encoding/binary"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// account is what one sink instance owes one Event, and what it knows of it.
// It decides what to write and what an answer means; the rules are those of
// docs/counting.md. It does no I/O, and one goroutine at a time may use it.
type Counter struct {
	instance Contributor
	Key      occurrence.Key
	// namespace of the Event, and what its name begins with.
	Namespace, Object string
	digest            occurrence.Digest // of the series; see identify
	// unidentified is an Event of the series while the digest is not known.
	unidentified *corev1.Event
	combined     bool
	// keyed: the digest follows from no Event, but from somebody's own key.
	keyed     bool
	EventType string

	// pending is in order of sequence.
	pending []Entry
	// carried is the highest sequence that any write has carried; what came
	// after it may still be combined. carriedByCreate tells of the last write.
	carried         uint64
	carriedByCreate bool
	// frozen is the highest sequence of the entries that a draft is planned from.
	frozen uint64
	// doubt is the highest sequence in a write whose answer was lost and that
	// may have taken effect; doubtBase is what it was based on, nil for a create.
	inDoubt     uint64
	inDoubtBase *observation

	// observed is nil if the object is not known to exist; author is who began it.
	observed *observation
	author   author
	// bare: the next write leaves out labels and annotations of reporters, since
	// the apiserver has refused one with them.
	bare bool
	// mustRead: the object exists, but not as it was last observed.
	mustRead bool
	// suffix counts the foreign objects found under the names before. Past
	// identity.MaxSuffix the name has a nonce instead, 0 until one is drawn.
	suffix int
	nonce  uint64
	// own: the object that was observed is nobody else's, since it has no
	// annotations by which others would know it. Then sent is what the last write
	// that was sent has put there, as far as it is not observed.
	exclusive bool
	sent      plan
}

func New(instance Contributor, t *occurrence.Target) *Counter {
	a := &Counter{instance: instance, Key: t.Key, Namespace: t.Event.Namespace, Object: t.Name, digest: t.Digest, combined: t.Combined, keyed: t.Digest != occurrence.Digest{}, EventType: t.Event.Type}
	if !a.keyed {
		a.unidentified = t.Identified()
	}
	return a
}

// identify computes the digest, if nobody has. That takes a while, so it is left
// to those who make requests.
func (a *Counter) identify() {
	if a.unidentified != nil {
		t := occurrence.Target{Event: a.unidentified, Combined: a.combined}
		a.digest, a.unidentified = t.Series(), nil
	}
}

// add appends what was reported, with a sequence higher than any before. It may
// share an entry with what came after the sequence apart. It returns whether there
// is one more entry, and by how many bytes the account has grown.
func (a *Counter) Add(sequence, sealed uint64, e *Entry, c Claim) (isNew bool, bytes int64) {
	e.Sequence = sequence
	n := len(a.pending)
	if n > 0 && a.pending[n-1].Sequence > max(sealed, a.carried, a.frozen) && a.pending[n-1].accepts(e) {
		n--
		a.pending[n].merge(e)
	} else {
		a.pending = append(a.pending, *e)
		isNew = true
	}
	if c != (Claim{}) {
		a.pending[n].addClaim(c)
	}
	return isNew, a.pending[n].measure()
}

// entries returns the pending entries in order of sequence.
func (a *Counter) Pending() []Entry { return a.pending }

// newest is the entry that was added last.
func (a *Counter) Newest() *Entry { return &a.pending[len(a.pending)-1] }

// last is the sequence of the newest pending entry, 0 if there is none.
func (a *Counter) Last() uint64 {
	if len(a.pending) == 0 {
		return 0
	}
	return a.pending[len(a.pending)-1].Sequence
}

// awaited is the last sequence whose outcome somebody waits for, 0 if there is none.
func (a *Counter) Awaited() uint64 {
	for i := range slices.Backward(a.pending) {
		if a.pending[i].Notify != nil {
			return a.pending[i].Sequence
		}
	}
	return 0
}

// weight is the sum over what is pending.
func (a *Counter) weight() int64 {
	var sum int64
	for i := range a.pending {
		sum += a.pending[i].Weight
	}
	return sum
}

// name is that of the object to address now.
func (a *Counter) name() string {
	if a.nonce != 0 {
		return identity.UniqueName(a.Object, a.digest, a.nonce)
	}
	return identity.Name(a.Object, a.digest, a.suffix)
}

// drawName draws a name that nobody can have taken, for an object to create that
// needs one. What may have been created keeps its name until that is known.
func (a *Counter) drawName(may Access) RandomName {
	why := NameDerived
	switch {
	case a.nonce != 0 || a.inDoubt > 0 || !a.Creates():
	case !may.Change:
		why = NameForbidden
	case may.Unmarked:
		why = NameUnmarked
	case a.suffix > identity.MaxSuffix:
		why = NameOccupied
	}
	if why != NameDerived {
		var b [8]byte
		rand.Read(b[:])                             // never fails
		a.nonce = binary.BigEndian.Uint64(b[:]) | 1 // 0 is none
	}
	return why
}

// isAlone tells whether nobody else writes to the object under the name.
func (a *Counter) isExclusive() bool { return a.exclusive || a.nonce != 0 }

// absorbs reports whether add would take no more memory: if the occurrence becomes part
// of the newest entry, and has nothing new to keep.
func (a *Counter) Absorbs(sequence, sealed uint64, e Entry, c Claim) bool {
	newest := a.Newest()
	if newest.Sequence <= max(sealed, a.carried, a.frozen) || c != (Claim{}) && !newest.endsAt(c) {
		return false
	}
	trial := Counter{pending: []Entry{*newest}}
	_, bytes := trial.Add(sequence, sealed, &e, Claim{})
	return bytes <= 0
}

// isStored reports whether the Event is known to be stored.
func (a *Counter) IsStored() bool { return a.observed != nil }
