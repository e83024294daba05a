package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The names of the API group. Both have the same resources and objects, which say GroupName: of two kinds of processes
// in a cluster, the apiserver needs two groups to tell them apart.
const (
	GroupName        = "query.eventd.io"
	ObserveGroupName = "observe.eventd.io" // of processes that only observe
)

// GroupCore is the core API group in an ObjectReference and in a query, since an empty one is any.
const GroupCore = "core"

// GroupVersion is the group and the version of these types.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// ObjectReference names an object that Events are about.
type ObjectReference struct {
	// Group is the API group, GroupCore for that of Pods. It is empty if the Event does not say its apiVersion.
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	// FieldPath is the part that an Event or a step is about, such as spec.containers{app}. No query selects by it.
	FieldPath string `json:"fieldPath,omitempty"`
}

// String returns KIND/NAME as kubectl prints it, with the group unless it is core: Service.serving.knative.dev/web.
func (o ObjectReference) String() string {
	kind := o.Kind
	if o.Group != "" && o.Group != GroupCore {
		kind += "." + o.Group
	}
	if kind == "" || o.Name == "" {
		return kind + o.Name
	}
	return kind + "/" + o.Name
}

// Figure is a value of /metrics.
type Figure struct {
	// Metric and Labels are those of /metrics.
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value"`
	// PerSecond is the rate of a counter over the last 4 to 6 seconds; less, and at first absent, in the first
	// seconds of the process.
	PerSecond *float64 `json:"perSecond,omitempty"`
}

// PipelineStatus is what eventd does at one moment. Its figures are those of /metrics of the replica.
type PipelineStatus struct {
	metav1.TypeMeta `json:",inline"`
	// Time is when the figures were read.
	Time metav1.MicroTime `json:"time"`
	// Replica is the one that the figures are of: the leader, unless local=true asks for the replica that
	// answers, or there is no leader.
	Replica Replica `json:"replica"`
	Leader  *Leader `json:"leader,omitempty"`
	// Followers are the other replicas, as they have reported to the leader. A replica that has ended
	// without a word stays for 10 minutes.
	Followers []Replica `json:"followers,omitempty"`
	// Apiserver is the connection to the apiserver, and what limits it.
	Apiserver Station `json:"apiserver"`
	// Stations are in the order in which an occurrence passes them, then an observed Event.
	Stations      []Station            `json:"stations"`
	Receivers     []ReceiverStatus     `json:"receivers,omitempty"`
	Rules         []RuleStatus         `json:"rules,omitempty"`
	Configuration *ConfigurationStatus `json:"configuration,omitempty"`
	History       *HistoryStatus       `json:"history,omitempty"`
	// Flags are those that differ from their defaults.
	Flags map[string]string `json:"flags,omitempty"`
	// Observe is those that observe, if they are other processes than those that take reports (--role), and Missing
	// says which of the two does not answer, and why. The plugin asks both; eventd sets neither.
	Observe *Process `json:"observe,omitempty"`
	Missing string   `json:"missing,omitempty"`
}

// Process is what a PipelineStatus says of the replicas of one role.
type Process struct {
	Replica       Replica              `json:"replica"`
	Leader        *Leader              `json:"leader,omitempty"`
	Followers     []Replica            `json:"followers,omitempty"`
	Configuration *ConfigurationStatus `json:"configuration,omitempty"`
	Flags         map[string]string    `json:"flags,omitempty"`
}

// Replica is a process of eventd.
type Replica struct {
	Identity string `json:"identity"`
	// Role is leader, standby or alone.
	Role    string       `json:"role"`
	Version string       `json:"version,omitempty"`
	Started *metav1.Time `json:"started,omitempty"`
	// Ready is false if /readyz fails; Reason says why.
	Ready  *bool  `json:"ready,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Follows, of a follower: it mirrors what is pending.
	Follows *bool `json:"follows,omitempty"`
	// UnknownSince, of a follower, is when it last reported, if that is too long ago: Ready is not known.
	// A follower of a release that does not report has neither.
	UnknownSince *metav1.Time `json:"unknownSince,omitempty"`
}

// Leader is the replica that records and writes.
type Leader struct {
	Identity string           `json:"identity"`
	Since    metav1.MicroTime `json:"since"`
	// Handovers is how often the Lease has changed its holder.
	Handovers int32 `json:"handovers"`
}

// Station is one of the stations, and its figures.
type Station struct {
	// Name is intake, broadcaster, correlator, sink, observer or history.
	Name string `json:"name"`
	// Healthy is false if the station holds up others, or fails; Message says how.
	Healthy bool   `json:"healthy"`
	Message string `json:"message,omitempty"`
	Queue   *Queue `json:"queue,omitempty"`
	// Figures are in the order in which they are to be read.
	Figures []Figure `json:"figures,omitempty"`
}

// Queue is what waits at a station.
type Queue struct {
	Length Figure `json:"length"`
	// Capacity is nil if it is limited by bytes.
	Capacity *Figure `json:"capacity,omitempty"`
	// OldestSeconds is the age of what has waited for the longest time.
	OldestSeconds *Figure `json:"oldestSeconds,omitempty"`
}

// ReceiverStatus is what a receiver does.
type ReceiverStatus struct {
	Name  string       `json:"name"`
	State string       `json:"state"`
	Until *metav1.Time `json:"until,omitempty"`
	// LastError is of the last attempt that failed, at FailedAt. It stays after a success.
	LastError string       `json:"lastError,omitempty"`
	FailedAt  *metav1.Time `json:"failedAt,omitempty"`
	// Cursor is the point up to which everything is settled.
	Cursor     string   `json:"cursor,omitempty"`
	LagSeconds Figure   `json:"lagSeconds"`
	Pending    Figure   `json:"pending"`
	Settled    []Figure `json:"settled,omitempty"`
}

// ConfigurationStatus is the configuration in force.
type ConfigurationStatus struct {
	Hash     string       `json:"hash"`
	LoadedAt *metav1.Time `json:"loadedAt,omitempty"`
	// Error is why a later file is not in force.
	Error string `json:"error,omitempty"`
}

// HistoryStatus is what the history keeps.
type HistoryStatus struct {
	Versions int64 `json:"versions"`
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"maxBytes"`
	// KnownSince is when the oldest of them was observed.
	KnownSince *metav1.MicroTime `json:"knownSince,omitempty"`
	// Connected: the watch is open.
	Connected bool `json:"connected"`
}

// Top has the noisiest keys of a window of time, with most occurrences first.
type Top struct {
	metav1.TypeMeta `json:",inline"`
	// Since and Until are the window.
	Since metav1.MicroTime `json:"since"`
	Until metav1.MicroTime `json:"until"`
	// By is object, reason, namespace or reporter.
	By string `json:"by"`
	// Occurrences is the sum over all keys, those that are not listed included.
	Occurrences int64 `json:"occurrences"`
	// OnlyReported: what others write to the apiserver is not counted, since the replica keeps no history.
	OnlyReported bool `json:"onlyReported,omitempty"`
	// Role is --role of the process that answers, and Missing is as in PipelineStatus.
	Role    string    `json:"role,omitempty"`
	Missing string    `json:"missing,omitempty"`
	Items   []TopItem `json:"items"`
}

// TopItem is one key, of which one field or, by object, Object is set.
type TopItem struct {
	Object    *ObjectReference `json:"object,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Namespace string           `json:"namespace,omitempty"`
	Reporter  string           `json:"reporter,omitempty"`
	// Occurrences is a lower bound, too low by at most Error, which is less.
	Occurrences int64 `json:"occurrences"`
	Error       int64 `json:"error,omitempty"`
	// Writes is how many versions of Events they have made, and Saved is how many writes eventd has
	// spared the apiserver.
	Writes int64 `json:"writes"`
	Saved  int64 `json:"saved"`
}

// Timeline has observed Events, in the order of their last times, oldest first.
type Timeline struct {
	metav1.TypeMeta `json:",inline"`
	// ListMeta has the resourceVersion up to which it is complete, from which a tail continues.
	metav1.ListMeta `json:"metadata"`
	// KnownSince is when the history begins. What was before is not known.
	KnownSince metav1.MicroTime `json:"knownSince"`
	// Truncated: older items match too, and are left out, by the limit or by the size of the answer.
	Truncated bool           `json:"truncated,omitempty"`
	Items     []TimelineItem `json:"items"`
}

// TimelineItem is a version of an Event.
type TimelineItem struct {
	// ID is uid/resourceVersion.
	ID              string           `json:"id"`
	ResourceVersion string           `json:"resourceVersion"`
	Observed        metav1.MicroTime `json:"observed"`
	Namespace       string           `json:"namespace"`
	Name            string           `json:"name"`
	Regarding       ObjectReference  `json:"regarding"`
	Type            string           `json:"type"`
	Reason          string           `json:"reason"`
	Message         string           `json:"message"`
	Reporter        string           `json:"reporter,omitempty"`
	// Instance is the reporting instance, or the host.
	Instance string           `json:"instance,omitempty"`
	Count    int64            `json:"count"`
	First    metav1.MicroTime `json:"first"`
	Last     metav1.MicroTime `json:"last"`
}

// What a Step says was done.
const (
	ActionRecorded   = "recorded"
	ActionFiltered   = "filtered"      // by Rule
	ActionWouldBe    = "would_be"      // decided by Rule, which is in dry run: Cause says what
	ActionMerged     = "merged"        // by the correlator into a series that exists
	ActionAggregated = "aggregated"    // by the correlator into the combined Event of its group
	ActionDeferred   = "deferred"      // until Until, for Cause
	ActionSettled    = "settled"       // with Outcome, for Cause
	ActionDelivered  = "delivered"     // to Receiver
	ActionUnrouted   = "not_delivered" // to Receiver, by Rule or for Cause
)

// CauseWouldBudget is the Cause of an ActionWouldBe whose rule has a budget, and does not drop.
const CauseWouldBudget = "would_budget"

// Step is something that was done to occurrences of a series.
type Step struct {
	Time metav1.MicroTime `json:"time"`
	// Action is one of the constants above.
	Action string `json:"action"`
	// Occurrences is the number of them, those of equal steps since First included.
	Occurrences int64             `json:"occurrences"`
	First       *metav1.MicroTime `json:"first,omitempty"`
	// Outcome and Cause are those of eventd_occurrences_settled_total, or the cause of a deferral.
	Outcome string            `json:"outcome,omitempty"`
	Cause   string            `json:"cause,omitempty"`
	Until   *metav1.MicroTime `json:"until,omitempty"`
	// Detail has the words of the apiserver, or of a destination. Only those who may list Events in all namespaces
	// get the Rule, the Receiver, and the Cause and the Detail of a delivery. For the others, deliveries of an Event
	// to several receivers are one step, except in a tail.
	Detail   string `json:"detail,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Receiver string `json:"receiver,omitempty"`
	// User has reported it.
	User string `json:"user,omitempty"`
	// The series.
	Namespace string          `json:"namespace,omitempty"`
	Event     string          `json:"event,omitempty"` // the name
	Regarding ObjectReference `json:"regarding"`
	Type      string          `json:"type,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"` // at most 256 bytes
	Reporter  string          `json:"reporter,omitempty"`
}

// Explanation is what became of the occurrences of an object.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	Object          ObjectReference `json:"object"`
	// KnownSince is the beginning of what the leader remembers. A handover loses what was before.
	KnownSince metav1.MicroTime `json:"knownSince"`
	// Forgotten: steps of this object have left the memory, so there were more.
	Forgotten bool `json:"forgotten,omitempty"`
	// Truncated: older steps or Events are left out, by the limit or by the size of the answer.
	Truncated bool   `json:"truncated,omitempty"`
	Leader    string `json:"leader,omitempty"`
	// Role is --role of the process that answers, and Missing is as in PipelineStatus.
	Role    string `json:"role,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Observe is what those that observe remember, if they are other processes. The plugin sets it.
	Observe *Memory `json:"observe,omitempty"`
	Steps   []Step  `json:"steps"`
	// Events are those of the object that are in the history.
	Events []TimelineItem `json:"events,omitempty"`
}

// Memory is how far back the leader of a role remembers.
type Memory struct {
	Leader     string           `json:"leader,omitempty"`
	KnownSince metav1.MicroTime `json:"knownSince"`
}

// DropList has the last steps by which occurrences were filtered or dropped, or would be; newest first.
type DropList struct {
	metav1.TypeMeta `json:",inline"`
	KnownSince      metav1.MicroTime `json:"knownSince"`
	// Truncated: older items are left out, by the limit or by the size of the answer.
	Truncated bool   `json:"truncated,omitempty"`
	Leader    string `json:"leader,omitempty"`
	Items     []Step `json:"items"`
}

// TailItem is what a tail sends: a version of an Event, or a step. A frame of type BOOKMARK has only
// ResourceVersion and Lost; one of type ERROR has a metav1.Status, with code 410 if the client's place was lost.
type TailItem struct {
	metav1.TypeMeta `json:",inline"`
	// ResourceVersion is the cursor to resume from.
	ResourceVersion string        `json:"resourceVersion,omitempty"`
	Event           *TimelineItem `json:"event,omitempty"`
	Step            *Step         `json:"step,omitempty"`
	// Lost, of a BOOKMARK, is how many steps were not sent, since the client was too slow. In a query over
	// named namespaces it is 1, since some of them may have been of others.
	Lost int64 `json:"lost,omitempty"`
	// Missing, of a BOOKMARK of the plugin, is as in PipelineStatus.
	Missing string `json:"missing,omitempty"`
}
