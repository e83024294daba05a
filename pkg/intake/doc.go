// Package intake is an HTTP source of occurrences that speaks the Kubernetes
// Events API: a client, for instance an unmodified client-go recorder, needs
// only another server address to feed a pipeline instead of the apiserver.
//
// It serves create, update and patch of events in core/v1 and in
// events.k8s.io/v1, and the discovery documents that clients need for that.
// Decoding, negotiation, patching and the metadata rules are the apiserver's
// own code (k8s.io/apiserver); what is a valid Event is in validation.go.
//
// # What a client is told
//
// A client is always answered under the name that it posted, with the count
// that it reported itself, whatever Event its report was merged into: clients
// build their next patch from the last answer. What was answered last for a
// name is its view. Views are kept in a bounded table; a forgotten one costs
// the client a 404 on its next patch, after which it posts again, and nothing
// is counted twice since the name's total goes with every report.
//
// A name is changed by one request at a time, and the next one goes on from there
// at once, though what the first has reported may wait for its write: a PATCH or PUT
// that raises the count of a POST that is not written yet is recorded, and so is a
// POST with a higher count of the same series. It reports all that lies above what
// is known to be written, so that nothing is lost if the POST is dropped, and nothing
// is counted twice if it is not (docs/counting.md, rule 2). Each is answered by what
// becomes of its own report. At most 16 reports of a name wait, and one where those of
// the caller's tenant take its share of Options.MaxViewBytes (below); a request beyond
// that waits for its turn.
//
// 200 and 201 are given once the
// write that holds the occurrence is committed. 202, with the same Event, is
// given as soon as it is clear that it will be written later: with others of its
// series, or when its subject's budget allows. The view has the change from then
// on, so that the client's next patch works and reports its difference. What
// becomes of that write is counted, and not told to the client any more.
//
// A POST that repeats one still under way joins it and gets its answer, as does a
// PATCH or PUT that changes nothing of what the last one under way says; after that
// such a POST is told 409, as by the apiserver. When a client goes away, or its time
// is up (504), its occurrence goes on: the view is remembered when it settles.
//
// A patch or update reports by how much it raises the name's count. What else
// it changes shows in the view; the occurrence keeps the identity that the name
// was first posted with, since the series is what it began as.
//
// An occurrence that was not written is answered by what became of it, and can
// be reported again; it is counted once:
//
//	queue or pending set full      429 with Retry-After
//	its source's budget is spent   429 without, as EventRateLimit answers: it is
//	                               for hours, and to wait for it would hold up
//	                               what else the client has to report
//	shutting down, no sink         503 with Retry-After
//	retries exhausted              503 with Retry-After
//	uncertain                      503 with Retry-After, but 504 without if its
//	                               name was generated: sent again it would have
//	                               another one, and be counted twice
//	the Event expired meanwhile    404, to a report that raises no count
//	refused by the apiserver       the apiserver's own Status, under the name
//	                               that the client posted
//	more than its user may add to  403: the user may create Events, and not patch
//	an Event that others began     them
//
// # Differences from kube-apiserver
//
// Beside these, the status code, the Status reason and the causes are those of
// a kube-apiserver of the same minor release, and so is what an answer shows of
// an Event. conformance_test.go holds the two against each other. They differ
// in this:
//
//   - get, list, watch and delete are answered 405.
//   - Server-side apply is answered 415, and managedFields are never set.
//   - Bodies are limited to 1 MiB by default, not 3 MiB. A body in JSON may have 512
//     values, nested 64 levels deep; an Event 64 owner references, 64 finalizers, and
//     64 labels and annotations together, and be as large as a body: more is answered
//     413, or 400 where it is found while decoding. shape.go says why.
//   - YAML is read up to 32 KiB, and without anchors and aliases, nor texts that look
//     like both.
//   - Of more than 16 errors in an Event's metadata the first 16 are answered.
//   - Answers are not compressed.
//   - Annotations below "eventd.io/" are removed from what clients send.
//   - A dry run does not tell whether the namespace exists, or what admission
//     would do: it does not reach the apiserver.
//   - Messages have other words where the apiserver's speak of its parts: of
//     kinds other than Event, of its router (406, 415), of keys in etcd.
//   - Tables, if a client asks for one, have the columns of any object.
//   - A name is known here only while its view is kept, and longer than the
//     Event if that expires first.
//   - 202 is a success, too. client-go takes it as one, as it does every code
//     from 200 to 206. A dry run is never answered so.
//   - resourceVersion and uid are those of the stored Event, which may stand
//     for several names; with a 202 they are made up, until a later answer has
//     the stored ones. A precondition is checked against the view, unless that is
//     from an earlier term of this process as leader: another one may have answered
//     since.
//   - When the apiserver cannot be asked who a caller is or what it may do,
//     the answer is 503 with Retry-After, not 401 or 500.
//   - Impersonation is answered 403, whatever rights the caller has.
//   - Nobody is anonymous: without a bearer token or a client certificate every path
//     but the probes is answered 401. A token for WebSockets is not read.
//   - A count that is lower than one reported before under the name is shown to
//     the client, and reports nothing until it is above that one again.
//   - A panic is answered with a Status, on a connection that stays open.
//
// # What of genericapiserver is taken over
//
// NewHandler builds its own chain, since genericapiserver.Config.New (apiserver 0.36)
// makes a server with storage, admission, OpenAPI and loopback clients. Of what that
// function, Config.New and DefaultBuildHandlerChain set up:
//
//	WithAuditInit, WithRequestReceivedTimestamp,  taken over
//	WithRequestInfo, WithCacheControl (which sets
//	X-Content-Type-Options, too), WithHTTPLogging,
//	WithRequestDeadline (60 s), WithWarningRecorder,
//	WithTimeoutForNonLongRunningRequests,
//	WithAuthentication, Unauthorized
//	                               WithRequestInfo reads no options of lists, and comes
//	                               after the limit of headers: it logs and parses what
//	                               anybody sends. A timeout that cannot be read is not
//	                               logged either (url.go)
//	WithPanicRecovery              own filter: answers 500 instead of breaking the
//	                               connection
//	WithAuthorization              own filter: 503 when the apiserver is away
//	WithImpersonation              own filter: all of it is refused
//	WithPriorityAndFairness,       own limits of requests in flight: the controller of
//	WithMaxInFlightLimit           APF would list, watch and write FlowSchemas
//	JSONPatchMaxCopyBytes          taken over, and no more than a body (copylimit.go)
//	maxJSONPatchOperations         taken over; maxValues is below it
//	MaxRequestBodyBytes            Options.MaxBodyBytes
//	MaxHeaderBytes (1 MiB),        smaller ones of the daemon's own server, since
//	ReadHeaderTimeout (32 s),      whoever connects can fill them: MaxHeaderBytes,
//	IdleTimeout (90 s), HTTP/2:    10 s, 90 s, 100 streams, frames of 16 KiB and
//	100 streams, frames and        buffers of UploadBufferBytes. Who serves by other
//	buffers of 256 KiB, TLS        means has to set these, and bound the connections
//	healthz, livez, readyz         taken over, without the check of the log
//	EnableMetrics                  of eventd's own registry, without /metrics/slis
//	EnableDiscovery                plain documents, not aggregated
//	WithAudit, WithFailed-         left out: the SubjectAccessReview is in the audit log
//	AuthenticationAudit            of the kube-apiserver, and so is each write
//	WithTracing, latency trackers  left out: there is nothing that they would be sent to
//	WithCORS, WithHSTS             left out: no browser is a client, as by default there
//	WithProbabilisticGoaway        left out, as by default there; the daemon has clients
//	                               reconnect when it stops
//	WithWaitGroup, WithRetryAfter  left out: the daemon's shutdown waits for requests
//	                               itself, and passes them on to a new leader
//	WithRoutine                    left out: it saves stack memory of watches
//	WithMuxAndDiscoveryComplete    left out: all routes are there before it serves
//	WithStorageVersionPrecondition,
//	WithWatchTermination…          left out: there is no storage, and no watch
//	OpenAPI, index, profiling,     left out: they would tell more than a caller needs,
//	debug flags, debug socket      and /debug/flags/v would change what is logged
//	admission                      left out: the kube-apiserver's sees every write
//	response compression           left out: an Event is small, and a compressor is not
//
// # One of several replicas
//
// With ServerOptions.Relay only the leader records; the others serve all the
// same. A create, update or patch, dry runs included, waits until somebody is known
// to lead, and is then authenticated and authorized, and its body read, where it
// arrives. Then:
//
//	the gate is open, and this process      served here, and waited for when
//	leads by the clock at that moment       the gate is closed
//	it comes from another replica           503 with Eventd-Not-Leading: it is
//	                                        not passed on twice
//	the leader is known                     passed on, and answered as the
//	                                        leader answers
//	it is let in here, but this process     as if it had not been let in
//	leads no more when it is recorded
//	otherwise                               parked until one of these holds, for
//	                                        RelayOptions.Park in all since its
//	                                        arrival, connecting included; then
//	                                        503 with Retry-After
//
// Where nobody is found to lead, Retry-After grows from a second with the time
// that this goes on, up to ten: a client of client-go asks ten times more at most.
//
// Everything else is answered where it arrives. Requests that are parked or
// passed on count as in flight, each with its body.
//
// A request is sent to a leader again, the same or the next one, only if it
// certainly had no effect: there was no connection, or it was closed before anything
// of the request was written, the leader's end of the
// connection said that it was not looked at, or the answer was Eventd-Not-Leading.
// If the answer is lost, the client is answered 503 with Retry-After, and repeats
// it: a repeated name counts nothing twice. An Event without a name, for which one
// is generated, would be another one: that is answered 504, without Retry-After,
// as by an apiserver that does not know what became of it. The time that is left of the request
// goes along as its timeout, and is all that a leader which does not answer costs;
// a connection that is silent is given up after 5 s, with the requests on it.
//
// The leader is an address and the fingerprint of a certificate, and there is
// nothing else that is verified or accepted: whoever may write the Lease says
// who the leader is. A handshake with anybody else ends before anything is sent.
// Another certificate at the same address is another leader, to whom no
// connection of the former one is used.
//
// The replicas know each other by a token of the ServiceAccount that they all run
// as, bound to an audience that the apiserver itself does not accept. A replica
// that passes on asserts the caller, name, uid, groups and extra, in one header,
// Eventd-Asserted-User, and takes every header that begins with Eventd- from what
// a client sends. A request with that header is believed if the token with it is,
// by a TokenReview for the audience, of the same user as the token of the
// leader's own; otherwise it is 401, or 503 if the apiserver cannot be asked. A
// caller so asserted is authorized again, by the leader. The token alone is
// nobody's: as a client it is 401. The two ways never mix, so a client's token
// asserts nothing. If the leader answers 401, it is this replica that it does not
// know, and the client is answered 503.
//
// Relay.Run finds out whether a replica can pass on: whether the apiserver accepts
// its own token, whether the leader knows it, who is asked once, and again while
// it refuses, and whether the leader answers. The leader is probed for that, over
// the same connections and one probe at a time; one that renews its Lease and
// answers nothing for RelayOptions.UnreachableAfter cannot be reached. Relay.Check
// tells, for a readiness probe, and Relay.Ready waits for a good token, which is
// all that a replica needs before it may lead: from then on it knows its own name,
// also when the token has expired.
//
// A request that is passed on is in the metrics of both replicas, and has one
// audit ID.
//
// # Callers among each other
//
// A flow is the requests of one tenant in one namespace; all ServiceAccounts of a
// namespace are one tenant. A request that another replica passes on is of the flow
// of the user that it asserts. What a request takes, in this order:
//
//   - Nothing, if it has no credentials, or a token that was rejected in the last
//     10 s: 401.
//   - A place in flight. Credentials that were accepted in the last 15 minutes have a
//     place of their tenant's flow. Others have one of their address (of the /64 with
//     IPv6), of as many that there are beside those. A request has one place for
//     each 16 KiB of its URI and headers, and one more.
//   - A TokenReview, unless the last one is kept. Known credentials have 100 a second,
//     and so have others. Within each, tenants or addresses take turns.
//   - A place of its flow, once it is known whose it is.
//   - A SubjectAccessReview, unless the last one is kept: 200 a second, in turns.
//   - A seat, while it is decoded and handled. Flows take turns at the seats
//     (fairqueuing/queueset of k8s.io/apiserver), with at most four turns at a time for
//     the namespaces of a tenant. Bodies that cost more than 4 MiB to decode have seats
//     of their own, half as many. A request has no seat while its body
//     arrives, while it waits for a leader, for another replica's answer, for its turn
//     at a name, or for its write.
//   - A share of the memory for answers that are not written yet. The answer is
//     written when all else has been given back, within 10 s.
//
// Places, the memory of answers, and that of further reports of names that have one
// waiting have no fixed shares. A tenant may have at most as much as it leaves free, and
// each of its namespaces, beyond the first request, half as much as is free. So one
// tenant has at most a half, in one namespace a third, and there is always something
// left for another one. Above its share a request is answered 429 with Retry-After; an
// answer is aborted; a further report of a name waits for those before it.
//
// # Limits and ownership
//
// An Intake starts no goroutines and needs no stop. A Relay has those of its
// connections to a leader, one for each 100 requests that may be in flight, and one
// that makes them, until Close.
//
// Requests are bounded by ServerOptions.MaxInFlight, bodies by Options.MaxBodyBytes,
// and headers by 64 KiB (431), or 80 KiB and the user if another replica passes them on.
// Those of requests that are parked or passed on hold at most the product of the first
// two. What is decoded at once is bounded by
// Options.MaxDecodeBytes, and views are by Options.MaxNames and Options.MaxViewBytes.
// A view belongs to the tenant (occurrence.TenantOf) that changed it last; the tenant
// that holds most makes room for all. What is under way in the pipeline is bounded
// there. All exported types are safe for use by many goroutines.
package intake
