package observer

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

// Version is one stored version of an Event, as this process has observed it. It is shared by all
// readers, and nobody changes it.
type Version struct {
	// Event is the stored object without managedFields, and with at most 64 labels, annotations, owner references and
	// finalizers each. If there are more, the annotation eventd.io/left-out says how many were left out.
	Event *corev1.Event
	// Observed is when this process received it.
	Observed time.Time
}

// ID identifies the version in every process: uid/resourceVersion.
func (v Version) ID() string { return string(v.Event.UID) + "/" + v.Event.ResourceVersion }

// leftOut is the annotation with the number of what was left out of a version.
const leftOut = identity.AnnotationPrefix + "left-out"

// maxItems is what a version has at most of each list: with the smallest labels, an Event takes ten times its size in etcd.
const maxItems = 64

// slim leaves out what may take much memory, and is of no use to anybody.
func slim(event *corev1.Event) {
	event.ManagedFields = nil
	items := len(event.Labels) + len(event.Annotations) + len(event.OwnerReferences) + len(event.Finalizers)
	if items <= maxItems {
		return
	}
	event.Labels, event.Annotations = firstOf(event.Labels), firstOf(event.Annotations)
	event.OwnerReferences = slices.Clone(event.OwnerReferences[:min(maxItems, len(event.OwnerReferences))])
	event.Finalizers = slices.Clone(event.Finalizers[:min(maxItems, len(event.Finalizers))])
	items -= len(event.Labels) + len(event.Annotations) + len(event.OwnerReferences) + len(event.Finalizers)
	if items > 0 {
		if event.Annotations == nil {
			event.Annotations = make(map[string]string)
		}
		event.Annotations[leftOut] = strconv.Itoa(items)
	}
}

// firstOf returns a map with the first keys of another one, eventd's own before all others.
func firstOf(m map[string]string) map[string]string {
	if len(m) <= maxItems {
		return m
	}
	order := func(key string) string {
		if strings.HasPrefix(key, identity.AnnotationPrefix) {
			return "\x00" + key // before all others
		}
		return key
	}
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	first := make(map[string]string, maxItems)
	for _, key := range keys[:maxItems] {
		first[key] = m[key]
	}
	return first
}

// Cursor is a point in the history of stored Events. Nothing at or below it has to be read again.
type Cursor struct {
	// Epoch counts the times that the history began anew, since etcd was restored from a backup.
	Epoch int64
	// ResourceVersion is empty in the zero Cursor, which is before everything.
	ResourceVersion string
}

// Start is where a reader begins: with all Events that are stored, after a cursor, or, if it is
// zero, with what is stored from now on.
type Start struct {
	Oldest bool
	Cursor Cursor
}

// Entry is a version, in the order of a reader.
type Entry struct {
	Version
	// Cursor is the point that is reached once this entry, and all before it, are settled. It is
	// zero within a list, which settles as a whole: the last entry of a list has it.
	Cursor Cursor
}

// Batch is what a reader returns.
type Batch struct {
	// Entries are in the order in which they have to be delivered. It may be empty: then only
	// Cursor has moved.
	Entries []Entry
	// Cursor, if not zero, is the point that is reached once all entries are settled.
	Cursor Cursor
	// Superseded is the number of versions that were observed for this reader, and left the buffer
	// before it read them. What is still stored of them is read, and observed, again.
	Superseded int64
	// Gap: the apiserver no longer has versions that this reader has not read. Entries go on with
	// the latest version of every Event that is still stored.
	Gap bool
	// Restored: etcd was restored from a backup. Everything that is stored follows, in a new epoch.
	Restored bool
}
