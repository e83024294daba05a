// Package delivery takes versions of Events from a source, routes them, and sends them to
// receivers.
//
// A Delivery promises, for each receiver:
//
//   - At least once: every version that a reader of the receiver returned is acknowledged by the
//     destination, filtered by a route, or rejected by the destination, before the cursor moves
//     past it. The next leader continues at the cursor.
//   - In order: one batch is in flight, and the next one is sent when the destination has
//     acknowledged it. Leadership is checked right before each attempt. A former leader's
//     attempt that is in flight may still add an older version.
//   - After a crash, versions of at most the cursor interval (2 s) and of one batch are
//     repeated, with the ids that they had. Failed writes of the cursors, and a list that was
//     not settled as a whole, make it more.
//   - After a planned end of the term, one batch at most is repeated, if the cursors can be stored
//     within a second.
//   - An attempt that fails is repeated, although the destination may have taken the batch.
//   - By itself: a receiver that is slow, hangs, refuses or panics delays no other receiver.
//   - Throttled as routes say: of a group of Events, a version is delivered, and then, once an
//     interval, a summary of those since. They are settled as filtered when they are read, so
//     summaries are outside of the promises above. They are in memory, within a limit, and lost with
//     the term.
//   - Accounted for: at every quiet moment, in versions, observed is the sum of delivered,
//     filtered{route}, superseded, given_up{reason}, handed_over and pending.
//
// Each receiver has a worker, a goroutine that holds one batch at a time, and a destination, a
// goroutine that makes the calls to the receiver. A call that ignores its context keeps the
// latter, and no second one is started beside it. The cursors of all receivers are one
// ConfigMap, which one goroutine writes. Delivery.Run owns all of them. It waits for them when
// its context ends, for a bounded time.
package delivery
