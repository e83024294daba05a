// Package eventfields reads what the two APIs of an Event, and their histories, have in several
// fields, and makes strings safe to encode.
package eventfields

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/truncate"
)

// LastTime returns when what the Event is about was last seen: the later of lastTimestamp and
// series.lastObservedTime, else eventTime, firstTimestamp or the creation. It is zero if there
// is none.
func LastTime(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if !last.IsZero() {
			break
		}
		last = t
	}
	return last
}

// CoreGroup stands for the API group of Pods and Nodes, whose name is empty.
const CoreGroup = "core"

// Group returns the API group of the object with an apiVersion. It is empty if the Event does not say it.
func Group(apiVersion string) string {
	group, _, versioned := strings.Cut(apiVersion, "/")
	switch {
	case apiVersion == "":
		return ""
	case !versioned || group == "":
		return CoreGroup
	}
	return group
}

// Count returns the count of the series if there is one, else that of the Event. One that has none, as a
// reporter of events.k8s.io writes it, stands for one occurrence.
func Count(e *corev1.Event) int32 {
	count := e.Count
	if e.Series != nil {
		count = e.Series.Count
	}
	return max(count, 1)
}

// Reporter returns the reporting controller or, without one, the component of the source.
func Reporter(e *corev1.Event) string { return cmp.Or(e.ReportingController, e.Source.Component) }

// ValidUTF8 returns what of s fits into maxBytes, with the replacement character for what is not
// UTF-8. An Event has such strings if a client wrote it in protobuf.
func ValidUTF8(s string, maxBytes int) string {
	s = truncate.String(s, maxBytes) // first, so that the rest costs nothing
	if utf8.ValidString(s) {
		return s
	}
	return truncate.String(strings.ToValidUTF8(s, "\uFFFD"), maxBytes)
}
