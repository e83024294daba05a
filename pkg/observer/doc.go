// Package observer reads every stored version of every Event from the apiserver, whoever wrote it, and
// hands it to readers, each of which has a cursor.
//
// It promises each reader:
//
//   - While a watch can be resumed: every stored version, in order of resourceVersion.
//   - After 410, when the apiserver has compacted its history: the latest version of every Event that
//     is still stored and that the reader has not had. Earlier versions collapse into it. If there is
//     any, or if observed versions are lost, Batch.Gap says so. In a quiet cluster 410 is normal, and
//     is no gap.
//   - First deliveries of one Event ascend. A version is returned again only after a list had to begin
//     anew, or in a new epoch. Its ID is the same.
//   - After etcd was restored from a backup: everything that is stored, in a new epoch. A restore is
//     noticed when a watch is opened, which happens at least every ten minutes, if the current
//     resourceVersion is lower than one seen before, or than a cursor. With bumped
//     revisions (etcdutl's --bump-revision), a restore is like a compaction: nothing is returned again.
//   - A reader observes what it returns, what it reports as superseded and what is pending, at any
//     moment (ReaderStatus).
//
// Not seen are versions that were stored and removed while nobody watched. A deletion is not returned,
// but moves the cursor. The first batch of a reader without a cursor is the one where it begins: it
// should be stored at once.
//
// One watch is shared by all readers. Its goroutine never waits for a reader: the apiserver would
// keep what is not read, without a bound. Versions go to a log that is bounded in bytes, and are
// removed from it when all readers have passed. A reader that is too slow for it, or begins before
// it, reads what is missing from the apiserver itself: by a short watch, or, after 410, by a list, of
// which it requests a page when it has returned the one before. So a slow reader costs the others
// nothing. The shared watch never lists: after 410 it begins anew, and a reader that has missed
// something by that lists for itself.
//
// An Observer ends with the context of Run; a Reader with Close. Both may be closed in any order.
package observer
