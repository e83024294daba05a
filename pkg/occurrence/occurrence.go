// Package occurrence defines what travels from a source through the pipeline: an
// Occurrence, which reports that something happened, and its Settlement, which reports
// how it ended. Every occurrence that is recorded gets exactly one outcome from every
// sink; a dropped one has a Reason.
package occurrence

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
)

// API is the API group through which an Event is written. Both groups serve the same
// stored object, with different validation (kubernetes pkg/apis/core/validation) and
// different RBAC rules.
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

// Occurrence reports that something happened Weight times. A source fills in Event,
// API and Weight; all other fields may be zero. Once it is published it is shared
// between subscribers and must not be changed.
type Occurrence struct {
	// Event is the report in the form of core/v1, which can express both APIs. Its
	// name is ignored: the stored name follows from the identity. If Event is nil,
	// Origin must be set, and WithEvent builds the Event.
	Event *corev1.Event
	// Origin, if not nil, replaces Event while the occurrence is queued.
	Origin Origin
	// API is the API that the Event is written through.
	API API
	// CreateOnly is set if the user may create Events and may not patch them. In an
	// Event of another user, such an occurrence changes only the last timestamp
	// and the count, by 1 for each Client.
	CreateOnly bool
	// Begun, if not nil, is the first Event of the series, whose identity is used
	// in place of that of Event. The intake sets it for a client that updates an
	// Event which it created with other contents. See Series.
	Begun *corev1.Event
	// Weight is the number of times that it happened: 1 from a recorder, the
	// increase from a client that counts by itself, 0 if such a client changed
	// something other than its count. While an earlier report under the same
	// Client name is pending, Weight includes that of the earlier one; the sink
	// distinguishes them by Total.
	Weight int64
	// Client is the Event name that a self-counting client posted, "" for others.
	// Total is the count that the client has reached under this name.
	Client string
	Total  int64
	// User is the name of the authenticated user that reported it, "" for a
	// recorder in this process. It is not part of the identity: limits apply to
	// each user, whatever source the Event claims. See TenantOf.
	User string
	// Budget, if not nil, replaces Burst and QPS of correlator.Options.
	Budget *Budget
	// Recorded is the time at which the occurrence was recorded.
	Recorded time.Time
	// Settled, if not nil, is called with the outcome: once by every sink that
	// received the occurrence, or once if there was none. It runs on a goroutine of
	// the pipeline, and must neither block nor record.
	Settled func(Settlement)
	// Deferred, if not nil, is called once, in place of Settled, by a sink that
	// accepts the occurrence and writes it later. The outcome is counted as usual,
	// and no callback reports it. Like Settled, it must neither block nor record.
	Deferred func()
}

// Origin builds the Event of a queued occurrence. It takes less memory than the Event,
// and less time on the goroutine of the recorder's caller. It is safe for use by many
// goroutines.
type Origin interface {
	// Type returns the Event's type, Normal or Warning.
	Type() string
	// Event builds the Event, as recorded at the given time. Each call returns a new one.
	Event(recorded time.Time) *corev1.Event
	// Shared returns the Event that all watchers of the occurrence read. It is built once.
	Shared(recorded time.Time) *Shared
}

// Type returns the Event's type, "" if there is neither an Event nor an Origin.
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

// WithEvent returns the occurrence with an Event in place of its Origin. If there is
// an Origin, the result is a copy that the caller owns.
func (o *Occurrence) WithEvent() *Occurrence {
	if o.Origin == nil {
		return o
	}
	made := *o
	made.Event, made.Origin = o.Origin.Event(o.Recorded), nil
	return &made
}

// Series returns the digest of the series that the occurrence belongs to: the hash of
// the identity of Identified. It needs the Event, and takes about a microsecond, so it
// is computed behind the queue and not by the recorder.
func (o *Occurrence) Series() Digest {
	return identity.Of(o.Identified())
}

// Identified returns the Event with the identity of the series: Begun, or else Event.
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
	// Replayed: its client reported it again; the count included it before.
	Replayed Outcome = "replayed"
	// Found: another process has counted it, in the name of the replica that recorded it.
	Found Outcome = "found"
	// HandedOver: it is left to the next leader: it was pending at the end of a shutdown and
	// another replica holds it, or it was adopted and the Lease was lost.
	HandedOver Outcome = "handed_over"
	// Acknowledged: another eventd has accepted it, and accounts for it from then on. Only a
	// remote sink settles so.
	Acknowledged Outcome = "acknowledged"
	// Filtered: a rule of the operator dropped it, before it was queued. The Reason is the
	// name of the rule.
	Filtered Outcome = "filtered"
	// Dropped: it will not be written, for a Reason.
	Dropped Outcome = "dropped"
	// Uncertain: the response to its last write was lost, and could not be
	// resolved. It may or may not be in the count.
	Uncertain Outcome = "uncertain"
)

// Outcomes lists every outcome.
var Outcomes = []Outcome{Created, Merged, Aggregated, Replayed, Found, HandedOver, Acknowledged, Filtered, Dropped, Uncertain}

// Reason is why an occurrence was dropped, or the rule that filtered it. Its values are
// metric labels.
type Reason string

const (
	// NoReason goes with every outcome but Dropped and Filtered.
	NoReason Reason = ""
	// Malformed: the recorder could not build an Event.
	Malformed Reason = "malformed"
	// NoSink: no sink was started.
	NoSink Reason = "no_sink"
	// QueueFull: the queue of a subscriber was full.
	QueueFull Reason = "queue_full"
	// Shutdown: it was recorded after the shutdown, or was not written before the
	// end of the drain timeout.
	Shutdown Reason = "shutdown"
	// BudgetSpent: the maximum number of series of its subject wait for the
	// subject's budget.
	BudgetSpent Reason = "budget_spent"
	// PendingFull: the sink has reached its limit of pending series or bytes, and
	// the namespace or the user's tenant has reached its share.
	PendingFull Reason = "pending_full"
	// AcknowledgedEvicted: it was evicted from the sink, in favour of a namespace or
	// tenant below its share, after the response to its client. See Deferred.
	AcknowledgedEvicted Reason = "acknowledged_evicted"
	// NotReplicated: no other replica held it in time, and it was not written in its place. Its
	// client may send it again.
	NotReplicated Reason = "not_replicated"
	// Invalid: the apiserver rejected it as invalid.
	Invalid Reason = "invalid"
	// Forbidden: the apiserver did not authorize the write.
	Forbidden Reason = "forbidden"
	// NamespaceNotFound: the namespace does not exist.
	NamespaceNotFound Reason = "namespace_not_found"
	// NamespaceTerminating: the namespace is being deleted.
	NamespaceTerminating Reason = "namespace_terminating"
	// RetriesExhausted: the retry period ended without success.
	RetriesExhausted Reason = "retries_exhausted"
	// PatchForbidden: its user may not patch Events, and it would add more than
	// CreateOnly permits to an Event of another user.
	PatchForbidden Reason = "patch_forbidden"
	// Refused: the apiserver rejected it with another error that no retry changes.
	Refused Reason = "refused"
)

// Reasons lists every reason for a drop.
var Reasons = []Reason{
	Malformed, NoSink, QueueFull, Shutdown, BudgetSpent, PendingFull, AcknowledgedEvicted, NotReplicated, Invalid, Forbidden, NamespaceNotFound,
	NamespaceTerminating, RetriesExhausted, PatchForbidden, Refused,
}

// Settlement reports how an occurrence ended.
type Settlement struct {
	Outcome Outcome
	// Reason is set if the outcome is Dropped or Filtered.
	Reason Reason
	// Err is the apiserver's last error, if that is why it was not written.
	Err error
	// Object has the namespace, name, UID, resourceVersion and creationTimestamp of
	// the stored Event, if the occurrence is in its count. No other field is set.
	// It is shared and must not be changed.
	Object *corev1.Event
}

// Counted reports whether the occurrence is in the count of a stored Event.
func (s Settlement) Counted() bool {
	switch s.Outcome {
	case Created, Merged, Aggregated, Replayed, Found:
		return true
	default:
		return false
	}
}
