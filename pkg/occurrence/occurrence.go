// Package occurrence holds what travels through the stations: one reported
// thing that happened, and what became of it.
package occurrence

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
)

// API is the API group through which an Event is written. Both serve the same
// stored object, under different validation and different RBAC rules.
type API uint8

const (
	// CoreV1 writes through v1 events.
	CoreV1 API = iota
	// EventsV1 writes through events.k8s.io/v1 events.
	EventsV1
)

// GroupVersion returns the API's group and version.
func (a API) GroupVersion() schema.GroupVersion {
	if a == EventsV1 {
		return eventsv1.SchemeGroupVersion
	}
	return corev1.SchemeGroupVersion
}

// Occurrence is one report on its way from a recorder to the apiserver. After
// it was published it is shared between subscribers and nobody may change it.
type Occurrence struct {
	// Event is what was reported, in the form of core/v1, which can express
	// both APIs. Its name is not the one that it is stored under. It is nil if
	// there is an Origin; then WithEvent makes it.
	Event *corev1.Event
	// Origin, if not nil, stands in a queue for the Event.
	Origin Origin
	// API is the one that the Event is to be written through.
	API API
	// Begun, if not nil, is the Event whose identity says which series it belongs
	// to, if its source knows that better than Event tells. See Series.
	Begun *corev1.Event
	// Weight is the number of things that happened which this reports: 1 from
	// a recorder, the difference from a client that counts by itself. It may
	// be 0 when such a client changed something else than its count. While an
	// earlier report under the same name has no outcome yet, it includes what
	// that one reports, too: who counts tells them apart by Client and Total.
	Weight int64
	// Client is the name that a self-counting client posted, "" for others;
	// Total is the count that the client has now reached under this name.
	Client string
	Total  int64
	// User is the name of the authenticated user that reported it, "" for a
	// recorder in this process. It is no part of the identity: limits are kept
	// for each user, whatever source the Event claims. See TenantOf.
	User string
	// CreateOnly: the user may create Events, and not change any Event of the
	// namespace. Of an Event that others began, such an occurrence changes nothing
	// but the time when it was last seen and the count, by 1 for each Client.
	CreateOnly bool
	// Recorded is when the recorder took it.
	Recorded time.Time
	// Settled, if not nil, is called once by every sink that the occurrence
	// was published to, or once if there was none. It is called on the
	// pipeline's own goroutines and must neither block nor record.
	Settled func(Settlement)
	// Deferred, if not nil, is called in place of Settled by a sink that takes
	// the occurrence and will write it later: it is counted as any other when it
	// has its outcome, which nobody else is told then. It is called once, and
	// like Settled must neither block nor record.
	Deferred func()
}

// Origin is what a recorder keeps of a report while it is queued: enough to make
// the Event of, and a good deal less of memory and of its caller's time. It is
// safe for use by many goroutines.
type Origin interface {
	// Type is that of the Event.
	Type() string
	// Event makes the Event, as recorded at the given time. Each is another one.
	Event(recorded time.Time) *corev1.Event
	// Name is the one that the Event, which it made, is to be stored under. It
	// is worked out once for all subscribers.
	Name(*corev1.Event) string
}

// Type is that of the Event, "" if there is none.
func (o *Occurrence) Type() string {
	switch {
	case o.Origin != nil:
		return o.Origin.Type()
	case o.Event != nil:
		return o.Event.Type
	default:
		return ""
	}
}

// WithEvent returns the occurrence with its Event in place of its Origin, as
// whoever takes it out of a queue needs it. If the Event had to be made, it and
// the occurrence that is returned are the caller's own.
func (o *Occurrence) WithEvent() *Occurrence {
	if o.Origin == nil {
		return o
	}
	made := *o
	made.Event, made.Origin = o.Origin.Event(o.Recorded), nil
	return &made
}

// Series returns the digest of the series that the occurrence belongs to: that of
// its Event's identity, unless its source has set another. Hashing takes a
// while, which is why recorders leave it, as the Event that it needs, to those
// behind the queue.
func (o *Occurrence) Series() Digest {
	return identity.Of(o.Identified())
}

// Identified returns the Event that has the identity of the series.
func (o *Occurrence) Identified() *corev1.Event {
	if o.Begun != nil {
		return o.Begun
	}
	return o.Event
}

// Outcome is how an occurrence ended. Its values are metric labels.
type Outcome string

const (
	// Created: the Event was created for it.
	Created Outcome = "created"
	// Merged: it was counted on an Event that existed.
	Merged Outcome = "merged"
	// Aggregated: it was counted on its group's combined Event.
	Aggregated Outcome = "aggregated"
	// Replayed: its client reported it again; it had been counted before.
	Replayed Outcome = "replayed"
	// Dropped: it will not be written, for a Reason.
	Dropped Outcome = "dropped"
	// Uncertain: it was given up while the answer to its last write was lost.
	Uncertain Outcome = "uncertain"
)

// Outcomes lists every outcome.
var Outcomes = []Outcome{Created, Merged, Aggregated, Replayed, Dropped, Uncertain}

// Reason says why an occurrence was dropped. Its values are metric labels.
type Reason string

const (
	// NoReason goes with every outcome but Dropped.
	NoReason Reason = ""
	// Malformed: the recorder could not make an Event of it.
	Malformed Reason = "malformed"
	// NoSink: nothing was started that would write it.
	NoSink Reason = "no_sink"
	// QueueFull: a station's queue had no room for it.
	QueueFull Reason = "queue_full"
	// Shutdown: it came after the pipeline was shut down, or had not been
	// written when the time to drain was over.
	Shutdown Reason = "shutdown"
	// BudgetSpent: its subject has as many series that wait for its budget as
	// it may.
	BudgetSpent Reason = "budget_spent"
	// PendingFull: the sink has as much pending as it may, and the namespace or the
	// user's tenant has its share of that.
	PendingFull Reason = "pending_full"
	// AcknowledgedEvicted: it had to make room in the sink for others, which have
	// less than their share, though its client had been told that it would be
	// written.
	AcknowledgedEvicted Reason = "acknowledged_evicted"
	// Invalid: the apiserver refused it as malformed.
	Invalid Reason = "invalid"
	// Forbidden: the apiserver did not allow the write.
	Forbidden Reason = "forbidden"
	// NamespaceNotFound: the namespace is not there.
	NamespaceNotFound Reason = "namespace_not_found"
	// NamespaceTerminating: the namespace is being deleted.
	NamespaceTerminating Reason = "namespace_terminating"
	// RetriesExhausted: the apiserver did not take it for too long.
	RetriesExhausted Reason = "retries_exhausted"
	// PatchForbidden: its user may not patch Events, and it is more than may be
	// added to an Event that others began.
	PatchForbidden Reason = "patch_forbidden"
	// Refused: the apiserver refused it in another way that no retry changes.
	Refused Reason = "refused"
)

// Reasons lists every reason for a drop.
var Reasons = []Reason{
	Malformed, NoSink, QueueFull, Shutdown, BudgetSpent, PendingFull, AcknowledgedEvicted, Invalid, Forbidden, NamespaceNotFound,
	NamespaceTerminating, RetriesExhausted, PatchForbidden, Refused,
}

// Settlement is the end of an occurrence.
type Settlement struct {
	Outcome Outcome
	// Reason is set if the outcome is Dropped.
	Reason Reason
	// Err is the apiserver's last answer, if that is why it was not written.
	Err error
	// Object has the name, UID, resourceVersion and creationTimestamp of the
	// stored Event, if the occurrence is counted on it. Nothing else is set. It
	// is shared and must not be changed.
	Object *corev1.Event
}

// Counted tells whether the occurrence is in the count of a stored Event.
func (s Settlement) Counted() bool {
	switch s.Outcome {
	case Created, Merged, Aggregated, Replayed:
		return true
	default:
		return false
	}
}
