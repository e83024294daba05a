// Package app is the eventd process: its flags, the assembly of its parts, and the
// order in which they start and stop. It contains no logic about Events.
//
// It promises:
//
//   - A wrong command line is reported in one line on stderr with exit code 1, before
//     anything starts. So is every other failure of the start, such as a port in use
//     or an unreadable certificate.
//   - Parts start from the end of the pipeline towards its source, so nothing is
//     accepted that cannot be written. The endpoint kubeconfig is written last, when
//     requests are served.
//   - Of several replicas one leads and accepts what clients report. The others
//     forward requests to it, and are ready too. docs/election-protocol.md describes
//     the election; /readyz?verbose shows the role.
//   - SIGTERM or SIGINT starts an orderly shutdown, and /readyz fails. A single
//     replica serves during the shutdown delay, closes the listener, finishes the
//     requests in flight and drains the pipeline. A leader closes its gate, hands
//     over, and drains the pipeline. Meanwhile it forwards requests, and it closes
//     the listener after the drain and the shutdown delay. All of this ends within
//     the shutdown grace period. A second signal ends the process at once.
//   - A leader that loses its Lease accepts nothing from that moment, by the clock,
//     and writes what is pending. It stands by, or shuts down in order.
//   - The exit code is 0 if everything that was accepted is settled, also after a
//     signal during the start. It is 1 if the start failed, if time ran out before
//     everything was written, or if the process exits because of a lost Lease. One
//     log line gives the reason.
package app
