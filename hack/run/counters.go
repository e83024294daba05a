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

// meter reads /metrics.
type meter struct {
	client *http.Client
	url    string
}

func newMeter(config *rest.Config) (*meter, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &meter{client: client, url: config.Host + "/metrics"}, nil
}

func (m *meter) read(ctx context.Context) (counters, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, nil)
	if err != nil {
		return counters{}, err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return counters{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return counters{}, fmt.Errorf("%s: %s", m.url, response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return counters{}, fmt.Errorf("%s: %w", m.url, err)
	}
	return countersOf(families), nil
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
