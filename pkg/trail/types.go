package trail

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// DefaultLimit is that of a query which has none.
const DefaultLimit = 500

// Object is what Events are about. In a query, empty fields match all.
type Object struct {
	// Group is the API group, eventfields.CoreGroup for that of Pods. One that an Event does not say is empty, and
	// matches each.
	Group, Kind, Namespace, Name string
	UID                          types.UID
	// FieldPath is the part of the object, only of a Step: no query selects by it.
	FieldPath string
}

// Step is something that was done to occurrences of a series, with equal ones: the first at First, the last at
// Time.
type Step struct {
	First, Time time.Time
	// Action is one of the constants of the API, such as v1alpha1.ActionMerged.
	Action      string
	Occurrences int64
	// Outcome and Cause are those of a settlement, or Cause that of a deferral.
	Outcome, Cause string
	Until          time.Time // zero if nothing is deferred
	// Detail has the words of the apiserver, or of a destination.
	Detail, Rule, Receiver string
	// User has reported it.
	User string
	// The series. Event is the name of the stored one, once it is known.
	Namespace, Event                string
	Regarding                       Object
	Type, Reason, Message, Reporter string
}

// Top has the noisiest keys of a window of time, with most occurrences first.
type Top struct {
	Since, Until time.Time
	By           string
	// Occurrences is the sum over all keys, those that are not listed included.
	Occurrences int64
	Items       []TopItem
}

// TopItem is one key, of which one field or, by object, Object is set.
type TopItem struct {
	Object                      *Object
	Reason, Namespace, Reporter string
	// Occurrences is a lower bound, too low by at most Error, which is less.
	Occurrences, Error int64
	// Writes is how many versions of Events they have made, and Saved how many writes were spared.
	Writes, Saved int64
}
