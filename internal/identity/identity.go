// Package identity says what makes two occurrences the same, and under which
// name their Event is stored. The rules are in docs/counting.md; a change to
// them changes the names of all Events, so it comes with a new version string.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations on the Events that eventd writes. Clients cannot set anything
// below AnnotationPrefix.
const (
	AnnotationPrefix = "eventd.io/"
	// Annotation holds the digest of the Event's identity.
	Annotation = AnnotationPrefix + "identity"
)

// CombinedPrefix begins the message of a group's combined Event. It is the one
// that client-go's aggregator sets.
const CombinedPrefix = "(combined from similar events): "

// version is hashed with every identity.
const version = "eventd/identity/v1"

// Object is a reference to an object without its resourceVersion, which does
// not make it another one.
type Object struct {
	Kind, Namespace, Name, UID, APIVersion, FieldPath string
}

// ObjectOf returns the parts of ref that make it this object.
func ObjectOf(ref *corev1.ObjectReference) Object {
	if ref == nil {
		return Object{}
	}
	return Object{
		Kind:       ref.Kind,
		Namespace:  ref.Namespace,
		Name:       ref.Name,
		UID:        string(ref.UID),
		APIVersion: ref.APIVersion,
		FieldPath:  ref.FieldPath,
	}
}

// Identity is everything that two occurrences have in common when they are
// counted on the same Event. It is comparable.
type Identity struct {
	// NewStyle is set for Events with an eventTime.
	NewStyle bool
	// Combined marks the Event of a group, whose message changes.
	Combined bool

	Namespace                              string
	SourceComponent, SourceHost            string
	ReportingController, ReportingInstance string
	InvolvedObject                         Object
	Type, Reason, Message                  string

	// Action and Related are part of new-style identities only.
	Action  string
	Related Object
}

// Of returns the identity of an Event in the form of core/v1.
func Of(event *corev1.Event) Identity {
	id := Identity{
		NewStyle:            !event.EventTime.IsZero(),
		Namespace:           event.Namespace,
		SourceComponent:     event.Source.Component,
		SourceHost:          event.Source.Host,
		ReportingController: event.ReportingController,
		ReportingInstance:   event.ReportingInstance,
		InvolvedObject:      ObjectOf(&event.InvolvedObject),
		Type:                event.Type,
		Reason:              event.Reason,
		Message:             event.Message,
	}
	if id.NewStyle {
		id.Action = event.Action
		id.Related = ObjectOf(event.Related)
		return id
	}
	if strings.HasPrefix(event.Message, CombinedPrefix) {
		id.Combined = true
		id.Message = ""
	}
	return id
}

// Digest identifies a series. It is comparable and can be a map key.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal, as it stands in the annotation.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Digest hashes the identity. Different identities have different inputs to
// the hash, since every field is preceded by its length.
func (id *Identity) Digest() Digest {
	var stack [1024]byte // most identities fit, and then nothing is allocated
	return sha256.Sum256(id.appendTo(stack[:0]))
}

func (id *Identity) appendTo(b []byte) []byte {
	b = append(b, version...)
	b = append(b, flag(id.NewStyle), flag(id.Combined))
	for _, field := range [...]string{
		id.Namespace,
		id.SourceComponent, id.SourceHost,
		id.ReportingController, id.ReportingInstance,
		id.Type, id.Reason, id.Message,
		id.Action,
	} {
		b = appendField(b, field)
	}
	for _, object := range [...]*Object{&id.InvolvedObject, &id.Related} {
		for _, field := range [...]string{
			object.Kind, object.Namespace, object.Name, object.UID, object.APIVersion, object.FieldPath,
		} {
			b = appendField(b, field)
		}
	}
	return b
}

func appendField(b []byte, field string) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
