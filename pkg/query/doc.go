// Package query answers the queries of query.eventd.io/v1alpha1: what eventd does and did, and what it
// has observed. It only reads. docs/query.md describes it for clients.
//
// It promises:
//
//   - Nobody learns more than the apiserver would show: a query over all namespaces needs the right to
//     list Events in all of them, one over named namespaces that right in each, and a watch the right to
//     watch too. Items belong to the namespace of their Event. A watch reviews these rights again while it
//     is open, and ends with them.
//   - Every figure is that of /metrics at the time of the answer, which is less than a second old.
//   - An answer is limited in bytes. A watch ends after 5 to 10 minutes, when the process shuts down, when
//     its client goes away or reads nothing for 10 s, and, unless it is of this replica's own history, when
//     the leader changes.
//
// Every replica answers timeline and tail from its own history. The rest is the leader's: other replicas
// have it answer, in the name of the caller.
//
// Run samples counters, for rates; else an API starts no goroutine but those of a watch or a relayed query, which
// end before it returns. It is safe for concurrent use, and needs no stop. Who serves it limits how many queries and watches
// there are at once.
package query
