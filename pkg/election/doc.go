// Package election decides which one of several processes leads, and runs what
// only the leader may do.
//
// An Elector takes part in an election through a lock that is kept in the
// cluster, usually a Lease. It promises:
//
//   - Leading compares clocks whenever it is asked. It depends on no goroutine
//     having run, so it is false in time in a process that was stopped, starved
//     or suspended, and what hangs cannot keep it true.
//   - No two processes lead at the same instant, for as long as their monotonic
//     clocks run at rates that differ by less than the ratio of LeaseDuration to
//     RenewDeadline, and nobody overwrites the Lease by force or deletes it.
//     (A holder that was seen is respected, but who starts just then has seen
//     none.) If that happens, the leader steps down, or puts the Lease back, as
//     soon as its watch tells. Wall clocks do not matter. This is no fencing: a request that a leader has sent may
//     arrive after its Lease is another's, so whoever needs more needs a
//     condition on what is written.
//   - A planned stop comes in this order: the leader's work is told to stop and
//     returns, nobody leads, the Lease is released, Run returns.
//   - The Lease is released only if a fresh read of it names this process, and
//     by a write that takes effect only if nothing was written in between.
//   - Whatever the lock does, Run ends soon after its context does and the work
//     has returned: a request that ignores its deadline is left behind.
//
// A Manager runs the components of a process: some everywhere, some on the
// leader only. Its order of start and stop is told at Manager.
//
// How it decides, and where it differs from client-go's tools/leaderelection,
// is told in docs/election-protocol.md.
package election
