// Package intake serves the Kubernetes Events API: create, update and patch of events in
// core/v1 and events.k8s.io/v1, and discovery. An unmodified client, such as client-go's
// recorder, needs only another server address. Decoding, negotiation, patches and the
// rules of metadata are the apiserver's own code (k8s.io/apiserver). A plain
// report, as client-go sends it, has a shorter handler, and is answered alike
// (docs/architecture.md). A POST of an EventList is a batch (docs/batch.md).
//
// The contract:
//
//   - The response has the name and the count that the client posted, whatever Event its
//     report was merged into. 200 and 201 mean that the write is committed, 202 that it
//     is not yet: another replica holds the occurrence, or its write is deferred. If an
//     occurrence is not written, a response other than 202 has its outcome.
//   - Each occurrence is recorded once. A repeated request counts nothing twice, within
//     the limits of docs/counting.md.
//   - All else is as in a kube-apiserver of the same minor release, except for the
//     differences in docs/intake.md. CONTRIBUTING.md lists the parts of genericapiserver
//     that are left out, and why.
//   - With ServerOptions.Forwarder only the leader records. The other replicas forward
//     requests to it (docs/election-protocol.md).
//   - With ServerOptions.Replication other replicas open sessions with this one. They are
//     authenticated as forwarded requests are, and take nothing from those.
//   - Clients share all limits fairly (docs/tenancy.md). ServerOptions.MaxInFlight limits
//     requests, Options.MaxBodyBytes bodies, Options.MaxDecodeBytes decoding, and
//     Options.MaxNames and Options.MaxViewBytes views. Headers are limited to 12 KiB; from
//     another replica to 16 KiB and the asserted user.
//
// An Intake owns the views: for each posted name the Event as its client sees it. A
// request changes a name under its lock. A view belongs to the tenant
// (occurrence.TenantOf) that changed it last. Occurrences belong to the pipeline after
// Options.Record, and stay there if their client disconnects.
//
// All exported types are safe for use by many goroutines. An Intake starts no goroutine
// and needs no stop. The goroutines of a handler end with its requests, or with a shared
// review, at most 30 s later.
package intake
