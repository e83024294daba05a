// Package app is the eventd process: its flags, how its parts are put
// together, and how they start and stop. It has no logic of its own about
// Events.
//
// What it promises:
//
//   - A wrong command line is answered with one line on stderr and exit code 1,
//     before anything was started. So is a port that is taken, a certificate that
//     cannot be read or made, and whatever else the start fails for.
//   - It starts from the end of the pipeline towards its source, so nothing is
//     accepted that could not be written; the endpoint kubeconfig appears last,
//     once requests are served.
//   - Of several replicas one leads and takes what is reported; the others pass
//     on to it what they receive. They are ready, too. Which one leads is decided
//     as docs/election-protocol.md tells, and shown by /readyz?verbose.
//   - On SIGTERM or SIGINT it stops in the order of the stream. /readyz fails. A
//     process that runs alone goes on for the shutdown delay, closes the
//     listener, finishes the requests in flight, and drains the pipeline. A
//     leader closes its gate and hands over, drains the pipeline, and meanwhile
//     passes on what it receives; it closes the listener when that is done and
//     the shutdown delay is over. All of it ends within the shutdown grace
//     period. A second signal ends the process at once.
//   - A leader that has lost its Lease takes nothing more from that moment by the
//     clock, and goes on writing what it owes. It stands by, or stops in order.
//   - The exit code is 0 if everything that was accepted has been settled by
//     then, as it has if the signal comes during the start, and 1 if something was given up because time ran out, if the start
//     failed, or if the process was to exit on a lost Lease; one log line says
//     what it was.
package app
