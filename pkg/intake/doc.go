// Package intake serves the Kubernetes Events API as a source of occurrences: an
// unmodified client, such as client-go's recorder, needs only another server address.
// It serves create, update and patch of events in core/v1 and events.k8s.io/v1, and
// discovery. Decoding, negotiation, patching and the metadata rules are the apiserver's
// own code (k8s.io/apiserver).
//
// It promises:
//
//   - A client is answered under the name and the count that it posted, whatever Event
//     its report was merged into. 200 and 201 mean that the write is committed, 202 that
//     it is deferred. An occurrence that was not written is answered by its outcome.
//   - Each occurrence is recorded once. A report that is sent again counts nothing
//     twice, within the limits of docs/counting.md.
//   - Otherwise a request is answered as by a kube-apiserver of the same minor release,
//     except for the differences in docs/intake.md, which also lists what of
//     genericapiserver is used, and what is left out and why.
//   - With ServerOptions.Relay only the leader records; the other replicas forward to it
//     (docs/forwarding.md).
//   - Clients share all limits fairly (docs/tenancy.md). Requests are bounded by
//     ServerOptions.MaxInFlight, bodies by Options.MaxBodyBytes, headers by 64 KiB, or 80
//     KiB and the asserted user from another replica. Decoding is bounded by
//     Options.MaxDecodeBytes, views by Options.MaxNames and Options.MaxViewBytes.
//
// An Intake owns the views, the last answer for each posted name: one request at a time
// changes a name, and the mutex of names guards the table. A view belongs to the tenant
// (occurrence.TenantOf) that changed it last. Occurrences belong to the pipeline as soon
// as Options.Record has them; those of a client that has gone go on.
//
// All exported types are safe for use by many goroutines. An Intake starts no goroutine
// and needs no stop. Those of a handler end with its requests, or with a review that
// others share, 30 s later at most. A Gate is open while its Run runs, which ends with
// its context and waits for admitted requests, for the gate's patience at most. A Relay
// has a goroutine that connects and some for each connection to the leader (one
// connection for 100 requests in flight); Relay.Close ends them, and Relay.Run ends with
// its context. An Issuer reads keys while its Run runs.
package intake
