package trail

import (
	"strings"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// maxSteps bounds the steps of one trace. A series has three to five.
	maxSteps = 64
	// maxName bounds names, as Kubernetes does. A client may have sent longer ones, as long as a
	// classic Event is not checked.
	maxName = 253
	// maxMessage and maxDetail bound texts.
	maxMessage = 256
	maxDetail  = 512
)

// Bytes of the elements without their strings, with what refers to them.
const (
	traceBytes  = int64(unsafe.Sizeof(trace{})) + 448 // in two maps
	seriesBytes = int64(unsafe.Sizeof(series{})) + 16
	stepBytes   = int64(unsafe.Sizeof(step{})) + 16
)

// flow is what fairness is about: nobody is evicted for another one that has more.
type flow struct{ namespace, tenant string }

// key identifies a trace: what one tenant has reported about an object. Others may report about the same
// object, and must not be able to push that out. What is not of a reporter has no tenant.
type key struct {
	flow
	object Object
}

// trace has the steps of a key. The mutex of the Trail guards it, its series and its steps.
type trace struct {
	key       key
	series    []*series
	steps     int
	bytes     int64 // of memory
	charged   int64 // bytes that the cache knows of
	last      int64 // of all steps
	forgotten bool  // steps have left

	// previous and next have the same name of the object.
	previous, next *trace
}

// series has the steps of Events that are equal but for time and count. The combined Events of a group are
// one series, with the last message.
type series struct {
	trace *trace
	labels
	event   string // name of the stored Event, once it is known
	steps   []*step
	subject *subject
	unfed   counts // not in the sketches yet
}

// labels are what a series differs by from others of its trace. They are of at most maxName bytes, and maxMessage.
type labels struct {
	eventType, reason, reporter, message, user, fieldPath string
	combined                                              bool
}

// step is something that was done to a series, with equal ones since. Its occurrences, times, texts
// and links change, nothing else.
type step struct {
	series            *series
	what              what
	detail            string
	occurrences       int64
	first, last, upTo int64 // in nanoseconds; upTo is 0 if nothing is deferred

	// drops and ownDrops link what was dropped or filtered: in all namespaces, and in one.
	drops, ownDrops links
}

// what is what equal steps have in common.
type what struct{ action, outcome, cause, rule, receiver string }

// isDrop reports whether a step is of those that occurrences are missing for, or would be.
func (w *what) isDrop() bool {
	switch w.action {
	case v1alpha1.ActionFiltered, v1alpha1.ActionWouldBe:
		return true
	case v1alpha1.ActionSettled:
		return w.outcome == string(occurrence.Dropped) || w.outcome == string(occurrence.Uncertain)
	default:
		return false
	}
}

// rank orders steps of the same time as an occurrence passes them.
func (w *what) rank() int {
	switch w.action {
	case v1alpha1.ActionRecorded:
		return 0
	case v1alpha1.ActionWouldBe:
		return 1
	case v1alpha1.ActionFiltered:
		return 2
	case v1alpha1.ActionMerged, v1alpha1.ActionAggregated:
		return 3
	case v1alpha1.ActionDeferred:
		return 4
	case v1alpha1.ActionSettled:
		return 5
	default:
		return 6
	}
}

// keyOf returns the key of an Event that a user has reported.
func keyOf(e *corev1.Event, user string) key {
	o := &e.InvolvedObject
	return key{
		flow: flow{truncate.String(e.Namespace, maxName), truncate.String(occurrence.TenantOf(user), maxName)},
		object: Object{
			Group: truncate.String(eventfields.Group(o.APIVersion), maxName), Kind: truncate.String(o.Kind, maxName), Namespace: truncate.String(o.Namespace, maxName), Name: truncate.String(o.Name, maxName),
			UID: types.UID(truncate.String(string(o.UID), maxName)),
		},
	}
}

// clone returns a copy that shares no memory with what a client sent.
func (k key) clone() key {
	k.namespace, k.tenant = strings.Clone(k.namespace), strings.Clone(k.tenant)
	o := &k.object
	o.Group, o.Kind, o.Namespace, o.Name = strings.Clone(o.Group), strings.Clone(o.Kind), strings.Clone(o.Namespace), strings.Clone(o.Name)
	o.UID = types.UID(strings.Clone(string(o.UID)))
	return k
}

func (k *key) bytes() int64 {
	o := &k.object
	return int64(len(k.namespace) + len(k.tenant) + len(o.Group) + len(o.Kind) + len(o.Namespace) + len(o.Name) + len(o.UID))
}

func labelsOf(e *corev1.Event, user string) labels {
	return labels{
		eventType: truncate.String(e.Type, maxName), reason: truncate.String(e.Reason, maxName), reporter: truncate.String(eventfields.Reporter(e), maxName),
		message: truncate.String(e.Message, maxMessage), user: truncate.String(user, maxName), fieldPath: truncate.String(e.InvolvedObject.FieldPath, maxName),
		combined: strings.HasPrefix(e.Message, identity.CombinedPrefix),
	}
}

func (l labels) clone() labels {
	l.eventType, l.reason, l.reporter = strings.Clone(l.eventType), strings.Clone(l.reason), strings.Clone(l.reporter)
	l.message, l.user, l.fieldPath = strings.Clone(l.message), strings.Clone(l.user), strings.Clone(l.fieldPath)
	return l
}

func (l *labels) bytes() int64 {
	return int64(len(l.eventType) + len(l.reason) + len(l.reporter) + len(l.message) + len(l.user) + len(l.fieldPath))
}

// has reports whether labels are those of the series.
func (s *series) has(l *labels) bool {
	return s.combined == l.combined && s.reason == l.reason && (s.combined || s.message == l.message) &&
		s.eventType == l.eventType && s.reporter == l.reporter && s.user == l.user && s.fieldPath == l.fieldPath
}

// find returns the series with labels, or nil. The last ones are those that go on.
func (r *trace) find(l *labels) *series {
	for i := len(r.series) - 1; i >= 0; i-- {
		if r.series[i].has(l) {
			return r.series[i]
		}
	}
	return nil
}

// find returns the step of a series that is equal, or nil.
func (s *series) find(w *what) *step {
	for _, st := range s.steps {
		if st.what == *w {
			return st
		}
	}
	return nil
}

// oldest returns the step that is older than all others, except for a given one.
func (r *trace) oldest(but *step) (found *step) {
	for _, s := range r.series {
		for _, st := range s.steps {
			if st != but && (found == nil || st.last < found.last) {
				found = st
			}
		}
	}
	return found
}
