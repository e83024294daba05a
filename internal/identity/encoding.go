package identity

import (
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"
)

// version is hashed with every identity.
const version = "eventd/identity/v2"

// Encoding is the identity of an Event as bytes: the fields that make it the
// same as another. No two identities have one encoding, since every field is
// preceded by its length. What identifies the subject comes first, then what
// makes Events similar, then the message.
//
// It is bytes and not a struct of fields because it is hashed for every single
// occurrence: that takes a quarter of the time so.
//
// The zero Encoding is ready for use, and keeps its memory from one identity to
// the next.
type Encoding struct {
	buffer         []byte
	bytes          []byte
	subject, group int // where they end
}

// Set makes e the encoding of an Event's identity.
func (e *Encoding) Set(event *corev1.Event) {
	e.bytes, e.subject, e.group = encode(e.buffer, event)
	e.buffer = e.bytes[:cap(e.bytes)] // it may have grown
}

// SetCombined makes e the encoding of the combined Event of its group, which has
// a marker and no message.
func (e *Encoding) SetCombined() {
	e.bytes[e.group] = flag(true)
	e.bytes = e.bytes[:put(e.bytes, e.group+1, "")]
}

// Subject is the part that all Events of a source about an object and of one
// type have in common. Like all parts it is good until e changes.
func (e *Encoding) Subject() []byte { return e.bytes[:e.subject] }

// Group is the part that follows: together with the subject, it is the same for
// Events that differ by their message only.
func (e *Encoding) Group() []byte { return e.bytes[e.subject:e.group] }

// Member is what follows the group: the message, or the marker of a combined
// Event.
func (e *Encoding) Member() []byte { return e.bytes[e.group:] }

// IsNewStyle tells whether the Event has an eventTime.
func (e *Encoding) IsNewStyle() bool { return e.bytes[e.subject] == flag(true) }

// IsCombined tells whether it is the encoding of a combined Event.
func (e *Encoding) IsCombined() bool { return e.bytes[e.group] == flag(true) }

// Bytes is all of it.
func (e *Encoding) Bytes() []byte { return e.bytes }

// encode writes the encoding into b, or into a larger slice. It returns what it
// wrote, and where subject and group end.
func encode(b []byte, event *corev1.Event) (out []byte, subject, group int) {
	related := event.Related
	if related == nil {
		related = &noObject
	}
	if need := encodedLen(event, related); need > len(b) {
		b = make([]byte, max(need, minEncoding))
	}
	n := copy(b, version)
	n = put(b, n, event.Namespace)
	n = put(b, n, event.Source.Component)
	n = put(b, n, event.Source.Host)
	n = put(b, n, event.ReportingController)
	n = put(b, n, event.ReportingInstance)
	n = putObject(b, n, &event.InvolvedObject)
	n = put(b, n, event.Type)
	subject = n

	newStyle := !event.EventTime.IsZero()
	b[n] = flag(newStyle)
	n = put(b, n+1, event.InvolvedObject.FieldPath)
	n = put(b, n, event.Reason)
	if newStyle {
		n = put(b, n, event.Action)
		n = putObject(b, n, related)
		n = put(b, n, related.FieldPath)
	}
	group = n

	combined, message := IsCombined(event), event.Message
	if combined {
		message = ""
	}
	b[n] = flag(combined)
	n = put(b, n+1, message)
	return b[:n], subject, group
}

// noObject is what Events without a related object are related to.
var noObject corev1.ObjectReference

const (
	// minEncoding is the least that is allocated for an encoding.
	minEncoding = 1024
	// lengthBytes precede each field. No field is as long as they could say.
	lengthBytes = 4
)

// encodedLen is at least what encode needs.
func encodedLen(event *corev1.Event, related *corev1.ObjectReference) int {
	const fields = 5 + 5 + 1 + 2 + 1 + 5 + 1 + 1
	return len(version) + 2 + fields*lengthBytes +
		len(event.Namespace) + len(event.Source.Component) + len(event.Source.Host) +
		len(event.ReportingController) + len(event.ReportingInstance) +
		objectLen(&event.InvolvedObject) + len(event.Type) +
		len(event.Reason) + len(event.Action) + objectLen(related) + len(event.Message)
}

func objectLen(o *corev1.ObjectReference) int {
	return len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.UID) + len(o.APIVersion) + len(o.FieldPath)
}

// putObject leaves out the fieldPath, which does not make it another object, and
// the resourceVersion.
func putObject(b []byte, n int, o *corev1.ObjectReference) int {
	n = put(b, n, o.Kind)
	n = put(b, n, o.Namespace)
	n = put(b, n, o.Name)
	n = put(b, n, string(o.UID))
	return put(b, n, o.APIVersion)
}

// put writes a field at n, and returns where it ends.
func put(b []byte, n int, field string) int {
	binary.LittleEndian.PutUint32(b[n:], uint32(len(field)))
	n += lengthBytes
	return n + copy(b[n:], field)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
