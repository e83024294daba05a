// Package model checks the protocol of docs/replication-protocol.md: a leader sends what it has pending
// to followers before it answers 202, and after its end another process writes that in its name.
//
// It has tests only. They search all states of small worlds: up to three processes, two series
// and four occurrences, with bounded crashes, lost requests and answers, broken streams, changes of
// leadership, expired Events, and lists of contributors and of clients that overflow. Every rule
// can be removed, and then the search prints the shortest history that breaks a property.
//
// The model mirrors pkg/sink/internal/counter: a counter has entries in order of sequence, carries
// a batch of them in one request, and settles what the stored share includes. A counter of another
// contributor is the same with that contributor's name.
//
// It leaves out time, memory limits, rights, foreign objects, and the content of Events.
package model
