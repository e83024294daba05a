// Package identity defines which occurrences form a series, and the name of its stored
// Event. docs/counting.md has the rules. A change to them changes the names of all Events,
// and requires a new version string.
package identity

import (
	"crypto/sha256"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"
)

// Annotations on the Events that eventd writes. Clients cannot set anything
// below AnnotationPrefix.
const (
	AnnotationPrefix = "eventd.io/"
	// Annotation holds the digest of the Event's identity.
	Annotation = AnnotationPrefix + "identity"
)

// CombinedPrefix is the prefix of the message of a group's combined Event, as client-go's
// EventAggregatorByReasonMessageFunc sets it.
const CombinedPrefix = "(combined from similar events): "

// Limits of the apiserver for new-style Events, in bytes
// (kubernetes pkg/apis/core/validation/events.go).
const (
	MaxReason            = 128
	MaxAction            = 128
	MaxReportingInstance = 128
	MaxNote              = 1024
)

// Digest identifies a series. occurrence.Digest is its public form.
type Digest = [sha256.Size]byte

// Of returns the digest of the series of an Event in the form of core/v1.
func Of(event *corev1.Event) Digest {
	var stack [1024]byte // most identities fit without an allocation
	b, _, _ := encode(stack[:0], event)
	return sha256.Sum256(b)
}

// OfCombined returns the digest of the combined Event of an Event's group.
func OfCombined(event *corev1.Event) Digest {
	var e Encoding
	e.Set(event)
	e.SetCombined()
	return sha256.Sum256(e.bytes)
}

// groupVersion is hashed with every custom group. Version 1 did not include the reporter.
const groupVersion = version + "/group/2"

// OfGroup returns the digest of the combined Event of a custom group: all Events of one
// namespace, reporter and style with the same key of a key function.
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
