// Package counters counts occurrences of stored Events, by the metrics of a configuration.
//
// Counters is a prometheus.Collector with one counter for each metric, and lasts as long as the
// process. It makes receivers, one for each term of leadership, which a Delivery sends every observed
// version to: so the versions have a cursor, and the accounts of any receiver. A version counts what
// it adds to the count of its Event:
//
//   - of an Event that was seen before, the increase of its count;
//   - of an Event that was created since the receiver began, and was not seen before, its count;
//   - of any other, 1: what it had before was counted by a former leader, or before.
//
// So the counters are exact while one receiver sees all versions, and approximate after a change of
// leader, after a gap, and for an Event whose count was forgotten. They are too low by what collapsed
// into a version that counts 1, and by what was not scraped before a crash; too high by what the next
// receiver gets again after one, and by a version that counts 1 though it adds less.
// What a receiver remembers of Events is bounded, and shared fairly by namespaces, and so are the
// series of a metric.
package counters
