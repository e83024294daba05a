package occurrence

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

// Digest identifies a series in all processes: Events with the same digest are counted
// on one stored Event, whose name and annotation it determines. It is comparable.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal, as it is in the annotation.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Key tells the series of one process apart. It is comparable, and good for as
// long as the process lives.
type Key struct{ A, B uint64 }

// KeyOf is the key of a series that is known by its digest.
func KeyOf(d Digest) Key {
	return Key{A: binary.LittleEndian.Uint64(d[:]), B: binary.LittleEndian.Uint64(d[8:])}
}

// Target is the Event that an occurrence is to be counted on, as a correlator
// decided.
type Target struct {
	// Key is that of the series that the Event stands for.
	Key Key
	// Digest is that of the series, if it follows from no Event, and Begun the
	// Event that it follows from, if that is not Event. See Series.
	Digest Digest
	Begun  *corev1.Event
	// Event is what is stored if there is no such Event yet, and whose message,
	// time, labels and annotations an existing one takes on. It must not be
	// changed afterwards.
	Event *corev1.Event
	// Name is what the Event's name begins with, as a rule that of the object
	// which it is about. It is the same for all occurrences of a series.
	Name string
	// Combined is set if the Event is its group's combined one.
	Combined bool
}

// Series returns the digest of the series. Hashing takes longer than all of a
// correlator's work, so it is left to those who write.
func (t *Target) Series() Digest {
	switch event := t.Identified(); {
	case t.Digest != (Digest{}):
		return t.Digest
	case t.Combined:
		return identity.OfCombined(event)
	default:
		return identity.Of(event)
	}
}

// Identified returns the Event that has the identity of the series, or of its
// group if it is combined.
func (t *Target) Identified() *corev1.Event {
	if t.Begun != nil {
		return t.Begun
	}
	return t.Event
}

// Merged is the outcome of an occurrence that is counted on the target without
// creating it.
func (t *Target) Merged() Outcome {
	if t.Combined {
		return Aggregated
	}
	return Merged
}
