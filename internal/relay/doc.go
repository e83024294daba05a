// Package relay has one of several replicas, the leader, record the requests of all of
// them (docs/election-protocol.md). It implements intake.Forwarder.
//
// The Gate is the leader gate: it admits requests on the leader. A Relay forwards all
// others to the replica that SetLeader has named, as the caller whom this replica has
// authenticated. It promises:
//
//   - A request is forwarded once, and answered as the leader answers, or 503 with
//     Retry-After. Without a leader it waits for Options.LeaderWait, connecting included.
//   - It is sent again only if it certainly had no effect. If the answer is lost, it may
//     have been recorded: the client gets 503, or 504 if its Event has no name.
//   - Nothing is sent to a server with another certificate than the announced one, and
//     nothing for a new leader over a connection to the former one.
//   - A connection that is silent for 5 s is closed. There are as many as Options.MaxInFlight
//     needs, with 100 requests each; other requests wait. They are replaced before they
//     run out of stream ids.
//   - Replicate keeps one session with the leader, over a connection of its own, and opens
//     it again while that one leads. A session with a former leader lasts until that ends
//     it.
//   - Query has the leader answer a GET, over a connection that only queries use.
//   - A replica is not ready (Relay.Check) while it cannot forward, and not elected
//     (Relay.Ready) before the apiserver has accepted its own token.
//
// All exported types are safe for use by many goroutines. Gate.Run ends with its context
// when admitted requests are answered, or after the grace period; Relay.Run and Relay.Replicate
// end with theirs. Relay.Close stops dials, and closes the connections when
// their requests are answered; it does not wait for that. net/http owns the goroutines of
// connections.
package relay
