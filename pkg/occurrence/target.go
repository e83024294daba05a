package occurrence

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

// Digest identifies a series in all processes. Occurrences with the same digest are
// counted on one stored Event, whose name and annotation follow from it.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal, as the annotation eventd.io/identity has it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Key identifies a series within one process. It is not stored.
type Key struct{ A, B uint64 }

// KeyOf returns the key of a series whose digest is known.
func KeyOf(d Digest) Key {
	return Key{A: binary.LittleEndian.Uint64(d[:]), B: binary.LittleEndian.Uint64(d[8:])}
}

// Target is the Event that a correlator chose to count an occurrence on.
type Target struct {
	// Key identifies the series of the Event.
	Key Key
	// Digest identifies the series, if it does not follow from an Event. Otherwise
	// it is zero, and follows from Begun, or from Event if Begun is nil. See Series.
	Digest Digest
	Begun  *corev1.Event
	// Event is created if it is not stored yet. If it is, the stored Event gets its
	// message, time, labels and annotations. It must not be changed.
	Event *corev1.Event
	// Name is the prefix of the stored name, usually the name of the involved
	// object. It is the same for all occurrences of a series.
	Name string
	// Combined is set if Event is the combined Event of its group.
	Combined bool
}

// Series returns the digest of the series. Hashing takes longer than a decision of the
// correlator, so the sink does it.
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

// Identified returns the Event with the identity of the series, or with that of the
// group if Combined is set.
func (t *Target) Identified() *corev1.Event {
	if t.Begun != nil {
		return t.Begun
	}
	return t.Event
}

// Merged returns the outcome of an occurrence that is counted on an existing Event:
// Merged or Aggregated.
func (t *Target) Merged() Outcome {
	if t.Combined {
		return Aggregated
	}
	return Merged
}
