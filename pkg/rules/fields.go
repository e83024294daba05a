package rules

import (
	"cmp"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/truncate"
)

const (
	// maxVisible is how many bytes of a string an expression sees. It bounds what one function costs:
	// the budget is checked between functions. A message of the kubelet has up to 10 KiB.
	maxVisible = 16 << 10
	// maxShort is that of a string that events.k8s.io/v1 limits to less. core/v1 does not, and one in
	// place of each character of another would take 256 MiB.
	maxShort = 1 << 10
)

// longest is the length of the longest string in an Event of events.k8s.io/v1.
const longest = 1024

var metadataType = newObjectType("eventd.Metadata", map[string]accessor[metav1.ObjectMeta]{
	"name":              {text(253), func(m *metav1.ObjectMeta) ref.Val { return short(m.Name) }},
	"namespace":         {text(63), func(m *metav1.ObjectMeta) ref.Val { return short(m.Namespace) }},
	"uid":               {text(128), func(m *metav1.ObjectMeta) ref.Val { return short(string(m.UID)) }},
	"labels":            {texts(63), func(m *metav1.ObjectMeta) ref.Val { return mapOf(m.Labels) }},
	"annotations":       {texts(longest), func(m *metav1.ObjectMeta) ref.Val { return mapOf(m.Annotations) }},
	"creationTimestamp": {apiservercel.TimestampType, func(m *metav1.ObjectMeta) ref.Val { return timestamp(m.CreationTimestamp) }},
})

var referenceType = newObjectType("eventd.Reference", map[string]accessor[corev1.ObjectReference]{
	"kind":       {text(63), func(o *corev1.ObjectReference) ref.Val { return short(o.Kind) }},
	"namespace":  {text(63), func(o *corev1.ObjectReference) ref.Val { return short(o.Namespace) }},
	"name":       {text(253), func(o *corev1.ObjectReference) ref.Val { return short(o.Name) }},
	"uid":        {text(128), func(o *corev1.ObjectReference) ref.Val { return short(string(o.UID)) }},
	"apiVersion": {text(317), func(o *corev1.ObjectReference) ref.Val { return short(o.APIVersion) }},
	"fieldPath":  {text(longest), func(o *corev1.ObjectReference) ref.Val { return visible(o.FieldPath) }},
})

var eventType = newObjectType("eventd.Event", map[string]accessor[corev1.Event]{
	"metadata":       {metadataType.decl, func(e *corev1.Event) ref.Val { return metadataType.new(&e.ObjectMeta) }},
	"involvedObject": {referenceType.decl, func(e *corev1.Event) ref.Val { return referenceType.new(&e.InvolvedObject) }},
	"related": {referenceType.decl, func(e *corev1.Event) ref.Val {
		return referenceType.new(cmp.Or(e.Related, &noReference))
	}},
	"reason":             {text(128), func(e *corev1.Event) ref.Val { return short(e.Reason) }},
	"message":            {text(longest), func(e *corev1.Event) ref.Val { return visible(e.Message) }},
	"type":               {text(63), func(e *corev1.Event) ref.Val { return short(e.Type) }},
	"action":             {text(128), func(e *corev1.Event) ref.Val { return short(e.Action) }},
	"count":              {apiservercel.IntType, func(e *corev1.Event) ref.Val { return types.Int(eventfields.Count(e)) }},
	"reportingComponent": {text(317), func(e *corev1.Event) ref.Val { return short(eventfields.Reporter(e)) }},
	"reportingInstance": {text(253), func(e *corev1.Event) ref.Val {
		return short(cmp.Or(e.ReportingInstance, e.Source.Host))
	}},
	"firstTimestamp": {apiservercel.TimestampType, func(e *corev1.Event) ref.Val {
		return timestamp(cmp.Or(e.FirstTimestamp, metav1.Time(e.EventTime)))
	}},
	"lastTimestamp": {apiservercel.TimestampType, func(e *corev1.Event) ref.Val { return timestamp(metav1.NewTime(eventfields.LastTime(e))) }},
})

// noReference is what related is without one. It is not changed.
var noReference corev1.ObjectReference

// text is the type of a string. Its length is the largest that the apiserver accepts in
// events.k8s.io/v1, where it checks it: the estimated cost of an expression follows from it. An
// Event of core/v1 can be longer.
func text(length int64) *apiservercel.DeclType {
	t := apiservercel.NewSimpleTypeWithMinSize("string", apiservercel.StringType.CelType(), types.String(""), 0)
	t.MaxElements = length
	return t
}

// texts is the type of a map with string keys and values of a length.
func texts(length int64) *apiservercel.DeclType {
	const entries, keyLength = 64, 317
	return apiservercel.NewMapType(text(keyLength), text(length), entries)
}

func visible(s string) ref.Val { return types.String(truncate.String(s, maxVisible)) }
func short(s string) ref.Val   { return types.String(truncate.String(s, maxShort)) }

func timestamp(t metav1.Time) ref.Val { return types.Timestamp{Time: t.Time} }

func mapOf(m map[string]string) ref.Val {
	return visibleMap{types.NewStringStringMap(types.DefaultTypeAdapter, m)}
}

// visibleMap is a map whose values are visible in part, like other strings. The apiserver limits
// the keys of labels and annotations.
type visibleMap struct{ traits.Mapper }

// IsZeroValue reports whether the map is empty.
func (m visibleMap) IsZeroValue() bool { return m.Size() == types.IntZero }

// Find returns the value of a key.
func (m visibleMap) Find(key ref.Val) (ref.Val, bool) {
	value, found := m.Mapper.Find(key)
	if text, isString := value.(types.String); isString {
		value = visible(string(text))
	}
	return value, found
}

// Get is Find, with an error for a key that is not in the map.
func (m visibleMap) Get(key ref.Val) ref.Val {
	if value, found := m.Find(key); found {
		return value
	}
	return types.NewErr("no such key: %v", key)
}
