// Package history keeps in memory what was observed, beyond the apiserver's time to live of Events.
//
// It promises:
//
//   - Every version that is added is found by List, from when Add has returned until it is removed. It
//     is removed for two reasons only: the limit in bytes, or a resourceVersion that is no number below
//     2^64, as etcd's all are.
//   - Its size in memory is at most Options.MaxBytes: what is encoded, the head, the hashes.
//     Not in it are what one run takes while it is encoded (about 4 MiB), the blocks that are decoded at
//     once (at most maxDecoding, usually 0.3 MiB each, at most 8 MiB), the results until they are released
//     (at most maxResultBytes each, maxResultsBytes in all), and what followers have decoded before it is
//     read (maxAheadBytes in all).
//   - Add takes microseconds. It waits neither for a reader nor for the encoding.
//   - A slow or absent follower costs nobody anything. One whose place was removed is told (ErrExpired).
//   - Readers decode on at most half of the processors, one block or run at a time. Tenants have equal parts of
//     that time, by fair queuing, and of the memory. A follower of old versions decodes each block once, while
//     its tenant has memory for what it has yet to read, and more often otherwise.
//
// A version has the fields that a timeline shows and that expressions of rules read (docs/history.md).
// Without others, such as managedFields, and with long strings cut, it takes at most 64 KiB.
//
// # Layout
//
// The newest versions are the head, as they were added. A run of it is sealed at a time: its versions are
// sorted by namespace, object, Event and time, and divided into blocks of at most blockVersions. A
// namespace that has much of the run has blocks of its own. A block has its versions in protobuf, which are
// compressed together, and hashes of what they have: namespaces, reasons, types, reporters, objects. A query
// decodes the blocks that have all that it names; of those, it decodes the Events whose object it names.
//
// # What is removed
//
// When the limit is reached, the oldest block is removed. But if a namespace has more than its equal
// share, MaxBytes / (1 + the number of namespaces that have blocks of their own), the oldest block of the
// one that has most is removed instead. So a namespace that floods replaces its own history first: it has
// at most half of the memory in the long run if it is the only one.
//
// # Order
//
// Versions are added in order of resourceVersion, except those of a list: when the history begins,
// after a gap, and after etcd was restored, which begins a new epoch. A follower gets them in the order in
// which they were added. The cursor of a follower or of a result is a resourceVersion, with the epoch
// behind a dot if it is not 0. It does not move within a list. Another replica counts epochs for
// itself; a cursor of an epoch that is not its own is expired there.
package history
