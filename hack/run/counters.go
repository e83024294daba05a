package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/metrics"
)

// counters are what eventd has done, by its /metrics.
type counters struct {
	recorded int64
	settled  map[string]int64 // by outcome
	pending  int64            // over all stages
	requests int64            // to the apiserver
	passedOn int64            // requests, to the leader
	leaders  []string         // their addresses

	receivers map[string]deliveries
}

// outcomes are shown in this order; those after the first two only if they
// occurred.
var outcomes = []string{"created", "merged", "aggregated", "replayed", "found", "handed_over", "acknowledged", "filtered", "uncertain", "dropped"}

// written is what the counts of stored Events must add up to.
func (c counters) written() int64 {
	return c.settled["created"] + c.settled["merged"] + c.settled["aggregated"]
}

// balanced reports whether everything that was recorded is settled or pending. What is pending may be
// deferred for minutes.
func (c counters) balanced() bool {
	sum := c.pending
	for _, n := range c.settled {
		sum += n
	}
	return sum == c.recorded
}

// meters lead to /metrics of all replicas, for what they deliver, too.
type meters struct {
	replicas []*rest.Config
	delivery *delivery
}

// read returns the sums.
func (all meters) read(ctx context.Context) (counters, error) {
	sum := counters{settled: make(map[string]int64), receivers: make(map[string]deliveries)}
	for _, config := range all.replicas {
		m, err := metrics.Read(ctx, config)
		if err != nil {
			return counters{}, fmt.Errorf("%s: %w", config.Host, err)
		}
		sum.add(config.Host, m)
		for _, receiver := range all.delivery.receivers {
			sum.receivers[receiver] = sum.receivers[receiver].add(m, receiver, all.delivery.routes)
		}
	}
	return sum, nil
}

func (c *counters) add(host string, m metrics.Metrics) {
	for _, outcome := range outcomes {
		if n, ok := m.Lookup("eventd_occurrences_settled_total", "outcome="+outcome); ok {
			c.settled[outcome] += int64(n)
		}
	}
	c.recorded += int64(m.Sum("eventd_occurrences_recorded_total"))
	c.pending += int64(m.Sum("eventd_occurrences_pending"))
	c.requests += int64(m.Sum("eventd_sink_requests_total"))
	c.passedOn += int64(m.Sum("eventd_relay_requests_total"))
	if m.Sum("eventd_election_leading") == 1 {
		c.leaders = append(c.leaders, host)
	}
}
