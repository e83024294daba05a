// Package eventsize estimates the size of an Event in memory, for caches and queues that
// are bounded in bytes. The sizes in protobuf or JSON are no substitute: an empty owner
// reference takes 3 bytes in JSON, and 112 in memory.
package eventsize

import (
	"unsafe"

	corev1 "k8s.io/api/core/v1"
)

// Upper bounds of the sizes of parts, in bytes.
const (
	eventBytes     = int64(unsafe.Sizeof(corev1.Event{}))
	referenceBytes = int64(unsafe.Sizeof(corev1.ObjectReference{}))
	pointerBytes   = 64  // a time, or a count with a time
	elementBytes   = 192 // of a list of owners, finalizers or managers
	mapBytes       = 384
	mapEntryBytes  = 96
)

// Of returns an upper bound of the size of an Event, in bytes. It takes a fraction of the
// time of Event.Size, since it runs for every occurrence.
func Of(e *corev1.Event) int64 {
	n := len(e.Kind) + len(e.APIVersion) +
		len(e.Name) + len(e.GenerateName) + len(e.Namespace) + len(e.GetSelfLink()) + len(e.UID) + len(e.ResourceVersion) +
		stringsOf(&e.InvolvedObject) + len(e.Reason) + len(e.Message) + len(e.Source.Component) + len(e.Source.Host) +
		len(e.Type) + len(e.Action) + len(e.ReportingController) + len(e.ReportingInstance)
	bytes := eventBytes + int64(n) + OfMap(e.Labels) + OfMap(e.Annotations)
	if e.Related != nil {
		bytes += referenceBytes + int64(stringsOf(e.Related))
	}
	if e.Series != nil {
		bytes += pointerBytes
	}
	if e.DeletionTimestamp != nil || e.DeletionGracePeriodSeconds != nil {
		bytes += 2 * pointerBytes
	}
	return bytes + bytesOfLists(e)
}

// bytesOfLists returns the size of fields that Events seldom have.
func bytesOfLists(e *corev1.Event) (bytes int64) {
	for i := range e.OwnerReferences {
		r := &e.OwnerReferences[i]
		bytes += elementBytes + int64(len(r.APIVersion)+len(r.Kind)+len(r.Name)+len(r.UID))
	}
	for _, f := range e.Finalizers {
		bytes += elementBytes + int64(len(f))
	}
	for i := range e.ManagedFields {
		f := &e.ManagedFields[i]
		bytes += elementBytes + pointerBytes + int64(len(f.Manager)+len(f.Operation)+len(f.APIVersion)+len(f.FieldsType)+len(f.Subresource))
		if f.FieldsV1 != nil {
			bytes += pointerBytes + int64(f.FieldsV1.Size())
		}
	}
	return bytes
}

func stringsOf(r *corev1.ObjectReference) int {
	return len(r.Kind) + len(r.Namespace) + len(r.Name) + len(r.UID) + len(r.APIVersion) + len(r.ResourceVersion) + len(r.FieldPath)
}

// OfMap returns an upper bound of the size of labels or annotations, in bytes.
func OfMap(m map[string]string) int64 {
	if len(m) == 0 {
		return 0
	}
	bytes := int64(mapBytes)
	for k, v := range m {
		bytes += mapEntryBytes + int64(len(k)+len(v))
	}
	return bytes
}
