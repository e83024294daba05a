package main

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// counters is what eventd says that it has done, read from its /metrics.
type counters struct {
	recorded int64
	settled  map[string]int64 // by outcome
	pending  int64            // over all stations
	requests int64            // to the apiserver
	passedOn int64            // requests, to the leader
	leaders  []string         // where those serve that say that they lead
}

// outcomes are shown in this order; those after the first two only if they
// occurred.
var outcomes = []string{"created", "merged", "aggregated", "replayed", "uncertain", "dropped"}

// written is what must stand in the counts of stored Events.
func (c counters) written() int64 {
	return c.settled["created"] + c.settled["merged"] + c.settled["aggregated"]
}

// quiet tells whether everything that was recorded has settled.
func (c counters) quiet() bool {
	sum := c.pending
	for _, n := range c.settled {
		sum += n
	}
	return c.pending == 0 && sum == c.recorded
}

// meters read /metrics of all replicas.
type meters []*meter

// read returns the sums.
func (all meters) read(ctx context.Context) (counters, error) {
	sum := counters{settled: make(map[string]int64)}
	for _, m := range all {
		c, err := m.read(ctx)
		if err != nil {
			return counters{}, err
		}
		sum.add(c)
	}
	return sum, nil
}

func (c *counters) add(other counters) {
	c.recorded += other.recorded
	for outcome, n := range other.settled {
		c.settled[outcome] += n
	}
	c.pending += other.pending
	c.requests += other.requests
	c.passedOn += other.passedOn
	c.leaders = append(c.leaders, other.leaders...)
}

// meter reads /metrics of one.
type meter struct {
	client *http.Client
	host   string
}

func newMeter(config *rest.Config) (*meter, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &meter{client: client, host: config.Host}, nil
}

func (m *meter) read(ctx context.Context) (counters, error) {
	url := m.host + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return counters{}, err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return counters{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return counters{}, fmt.Errorf("%s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return counters{}, fmt.Errorf("%s: %w", url, err)
	}
	c := countersOf(families)
	for _, metric := range families["eventd_election_leading"].GetMetric() {
		if metric.GetGauge().GetValue() == 1 {
			c.leaders = append(c.leaders, m.host)
		}
	}
	return c, nil
}

func countersOf(families map[string]*dto.MetricFamily) counters {
	c := counters{settled: make(map[string]int64)}
	for _, metric := range families["eventd_occurrences_recorded_total"].GetMetric() {
		c.recorded += int64(metric.GetCounter().GetValue())
	}
	for _, metric := range families["eventd_occurrences_settled_total"].GetMetric() {
		c.settled[label(metric, "outcome")] += int64(metric.GetCounter().GetValue())
	}
	for _, metric := range families["eventd_occurrences_pending"].GetMetric() {
		c.pending += int64(metric.GetGauge().GetValue())
	}
	for _, metric := range families["eventd_sink_requests_total"].GetMetric() {
		c.requests += int64(metric.GetCounter().GetValue())
	}
	for _, metric := range families["eventd_relay_requests_total"].GetMetric() {
		c.passedOn += int64(metric.GetCounter().GetValue())
	}
	return c
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
