// Package election decides which of several processes leads.
//
// An Elector takes part in an election through a lock in the cluster, usually a
// Lease. It promises:
//
//   - Leading compares clocks at each call. It does not depend on a goroutine that
//     has to run first, so it is false in time in a process that was stopped,
//     starved or suspended.
//   - At most one process leads at any instant. This holds while the rates of their
//     monotonic clocks differ by less than the ratio of LeaseDuration to
//     RenewDeadline, and nobody overwrites or deletes the Lease by force. After
//     that, the leader steps down, or creates the Lease again, when its watch
//     reports the change. Wall clocks do not matter.
//   - A planned stop has this order: the leader's work is cancelled and returns,
//     Leading becomes false, the Lease is released, Run returns.
//   - The Lease is released only if a fresh read names this process, and only by a
//     write that fails after any other write.
//   - Run ends soon after its context has ended and the work has returned, whatever
//     the lock does. A call that ignores its deadline is abandoned.
//
// This is no fencing: a request of a former leader may arrive after another process
// has acquired the Lease. Whoever needs fencing needs a condition on each write.
//
// LeaseLock stores the holder in a Lease, and what the holder announces about
// itself. Package lifecycle runs the components of a process by an Elector.
//
// docs/election-protocol.md describes the protocol, and where it differs from
// client-go's tools/leaderelection.
package election
