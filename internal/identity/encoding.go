package identity

import (
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"
)

// version is hashed with every identity.
const version = "eventd/identity/v2"

// Encoding is the identity of an Event as bytes. Every field is preceded by its length, so
// different identities have different encodings. The fields of the subject come first, then
// those of the group, then the message.
//
// It is hashed for every occurrence, which takes a quarter of the time of hashing a struct.
//
// The zero Encoding is ready for use. It reuses its memory.
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

// SetCombined makes e the encoding of the combined Event of its group: a marker and no
// message.
func (e *Encoding) SetCombined() {
	e.bytes[e.group] = flag(true)
	e.bytes = e.bytes[:put(e.bytes, e.group+1, "")]
}

// Subject returns the part that identifies the source, reporter, object, type and namespace.
// Like all parts it is valid until e changes.
func (e *Encoding) Subject() []byte { return e.bytes[:e.subject] }

// Group returns the part that follows. Together with the subject, it is equal for Events that
// differ only in the message.
func (e *Encoding) Group() []byte { return e.bytes[e.subject:e.group] }

// Member returns the part that follows the group: the message, or the marker of a combined
// Event.
func (e *Encoding) Member() []byte { return e.bytes[e.group:] }

// IsNewStyle reports whether the Event has an eventTime.
func (e *Encoding) IsNewStyle() bool { return e.bytes[e.subject] == flag(true) }

// IsCombined reports whether it is the encoding of a combined Event.
func (e *Encoding) IsCombined() bool { return e.bytes[e.group] == flag(true) }

// Bytes returns the whole encoding.
func (e *Encoding) Bytes() []byte { return e.bytes }

// encode writes the encoding into b, or into a new slice if b is too short. It returns the
// encoding, and the ends of subject and group.
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

// noObject replaces a missing related object.
var noObject corev1.ObjectReference

const (
	// minEncoding is the minimum size of a buffer.
	minEncoding = 1024
	// lengthBytes is the size of the length that precedes each field.
	lengthBytes = 4
)

// encodedLen returns an upper bound of the length of the encoding.
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

// putObject writes an object without the fieldPath and the resourceVersion, which do not
// identify it.
func putObject(b []byte, n int, o *corev1.ObjectReference) int {
	n = put(b, n, o.Kind)
	n = put(b, n, o.Namespace)
	n = put(b, n, o.Name)
	n = put(b, n, string(o.UID))
	return put(b, n, o.APIVersion)
}

// put writes a field at n, and returns its end.
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
