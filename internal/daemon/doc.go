// Package daemon is the eventd process: its flags, how its parts are put
// together, and how they start and stop. It has no logic of its own about
// Events.
//
// What it promises:
//
//   - A wrong command line is answered with one line on stderr and exit code 1,
//     before anything was started.
//   - It starts from the end of the pipeline towards its source, so nothing is
//     accepted that could not be written; the endpoint kubeconfig appears last,
//     once requests are served.
//   - On SIGTERM or SIGINT it stops in the order of the stream: /readyz fails and
//     the listener closes, the requests in flight are finished, then the pipeline
//     is drained. All of it ends within the shutdown grace period. A second
//     signal ends the process at once.
//   - The exit code is 0 if everything that was accepted has been settled by
//     then, and 1 if something was given up because time ran out; one log line
//     says how much.
package daemon
