// Package lifecycle starts and stops the components of one process: some run on
// every replica, some on the leader only.
//
// A Manager promises:
//
//   - Components start in the order given, each when the one before is ready, and
//     stop in reverse order. Those that need leadership start at each election.
//   - At a stop, the components that need leadership end before the Lease is
//     released, and drain after that. None of them starts during a stop.
//   - When the Lease is lost, the components that need leadership are cancelled
//     together. They drain until the next election, while the process stands by.
//   - The error of one component stops all of them.
//   - Run ends within its grace periods, whatever the components do. Its error
//     names what has not ended, and then the Lease is left to expire.
//
// Who leads is decided by an Elector, such as the one of package election. Without
// one, the process leads from start to stop.
package lifecycle
