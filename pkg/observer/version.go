package observer

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Version is one stored version of an Event, as this process has observed it. It is shared by all
// readers, and nobody changes it.
type Version struct {
	// Event is the stored object without managedFields.
	Event *corev1.Event
	// Observed is when this process received it.
	Observed time.Time
}

// ID identifies the version in every process: uid/resourceVersion.
func (v Version) ID() string { return string(v.Event.UID) + "/" + v.Event.ResourceVersion }

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
