// Package identity says what makes two occurrences the same, and under which
// name their Event is stored. The rules are in docs/counting.md; a change to
// them changes the names of all Events, so it comes with a new version string.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
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

// IsCombined tells whether a client has reported an Event as its group's
// combined one.
func IsCombined(event *corev1.Event) bool {
	return event.EventTime.IsZero() && strings.HasPrefix(event.Message, CombinedPrefix)
}

// Digest identifies a series: occurrence.Digest, which is public.
type Digest = [sha256.Size]byte

// Of returns the digest of the series that an Event in the form of core/v1
// belongs to.
func Of(event *corev1.Event) Digest {
	var stack [1024]byte // most identities fit, and then nothing is allocated
	b, _, _ := encode(stack[:], event)
	return sha256.Sum256(b)
}

// OfCombined returns the digest of the combined Event of an Event's group.
func OfCombined(event *corev1.Event) Digest {
	var e Encoding
	e.Set(event)
	e.SetCombined()
	return sha256.Sum256(e.bytes)
}

// groupVersion is hashed with every group that a key function names. The first one
// had no number and left out who reports.
const groupVersion = version + "/group/2"

// OfGroup returns the digest of the combined Event of a group that is not what
// this package says but what somebody's own key function does: all Events of one
// namespace, reporter and style to which it gives the same key.
func OfGroup(event *corev1.Event, key string) Digest {
	fields := [...]string{
		event.Namespace,
		event.Source.Component, event.Source.Host, event.ReportingController, event.ReportingInstance,
		key,
	}
	b := append([]byte(groupVersion), flag(!event.EventTime.IsZero()))
	for _, field := range fields {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(field)))
		b = append(b, field...)
	}
	return sha256.Sum256(b)
}
