// Package trail remembers what eventd did with the occurrences of each object, to answer why an Event is
// there, is not there, or is not there yet: recorded, filtered, merged, aggregated, deferred, settled,
// delivered. It also ranks who is noisy.
//
// The stations of the pipeline tell a Trail what they do (pipeline.Options, delivery.Options, intake.Options).
// None of them knows it. What a step has in common with an earlier one of its series is added to that: so the
// occurrences of an object that were recorded are those that have settled, and those that are pending, as long
// as no step of the object was forgotten.
//
// Memory is bounded in bytes (Options.MaxBytes), and fair: steps are charged to the flow, which is the tenant in
// a namespace. At the limit, the object that was quiet for longest of the flow with most leaves. So a flood of one
// namespace, or of one tenant in it, replaces only its own. An answer says since when all is known.
//
// One mutex guards everything, and no code of others runs with it held. A call of a station takes about a
// microsecond, and a query holds the mutex for the time that it takes to copy what it returns. Shards
// would need a limit for each of them, which would no longer be fair.
//
// A Trail starts no goroutine and needs no shutdown.
package trail
