package identity

import (
	"encoding/binary"
	"strings"

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
	bytes          []byte
	subject, group int // where they end
}

// Set makes e the encoding of an Event's identity.
func (e *Encoding) Set(event *corev1.Event) {
	e.bytes, e.subject, e.group = encode(e.bytes[:0], event)
}

// SetCombined makes e the encoding of the combined Event of its group: a marker and no
// message.
func (e *Encoding) SetCombined() {
	e.bytes = put(append(e.bytes[:e.group], flag(true)), "")
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

// encode appends the encoding to b, which is empty. It returns the encoding, and the ends of
// subject and group.
func encode(b []byte, event *corev1.Event) (out []byte, subject, group int) {
	b = append(b, version...)
	b = put(b, event.Namespace)
	b = put(b, event.Source.Component)
	b = put(b, event.Source.Host)
	b = put(b, event.ReportingController)
	b = put(b, event.ReportingInstance)
	b = putObject(b, &event.InvolvedObject)
	b = put(b, event.Type)
	subject = len(b)

	newStyle := !event.EventTime.IsZero()
	b = append(b, flag(newStyle))
	b = put(b, event.InvolvedObject.FieldPath)
	b = put(b, event.Reason)
	if newStyle {
		related := event.Related
		if related == nil {
			related = &corev1.ObjectReference{}
		}
		b = put(b, event.Action)
		b = putObject(b, related)
		b = put(b, related.FieldPath)
	}
	group = len(b)

	message := event.Message
	combined := !newStyle && strings.HasPrefix(message, CombinedPrefix) // its client combined it
	if combined {
		message = ""
	}
	b = append(b, flag(combined))
	return put(b, message), subject, group
}

// putObject appends an object without the fieldPath and the resourceVersion, which do not
// identify it.
func putObject(b []byte, o *corev1.ObjectReference) []byte {
	b = put(b, o.Kind)
	b = put(b, o.Namespace)
	b = put(b, o.Name)
	b = put(b, string(o.UID))
	return put(b, o.APIVersion)
}

// put appends a field.
func put(b []byte, field string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(field)))
	return append(b, field...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
