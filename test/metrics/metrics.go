// Package metrics reads counters and gauges, from /metrics of a server or from a
// registry in this process.
package metrics

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Metrics are the values of counters and gauges by series, such as
// eventd_occurrences_settled_total{outcome=created,reason=}.
type Metrics map[string]float64

// Text reads /metrics of a server.
func Text(ctx context.Context, config *rest.Config) ([]byte, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // it returns an error of its own shortly before ctx ends
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
}

// Read reads and parses /metrics of a server.
func Read(ctx context.Context, config *rest.Config) (Metrics, error) {
	text, err := Text(ctx, config)
	if err != nil {
		return nil, err
	}
	families, err := Parse(text)
	return of(slices.Collect(maps.Values(families))), err
}

// Parse parses the text of /metrics.
func Parse(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// Gather reads a registry.
func Gather(t testing.TB, g prometheus.Gatherer) Metrics {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Error(err)
	}
	return of(families)
}

func of(families []*dto.MetricFamily) Metrics {
	out := Metrics{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// Sum adds up all series of a metric that have all of the given labels, such as
// "outcome=created".
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum, _ := m.Lookup(name, labels...)
	return sum
}

// Lookup is Sum, and reports whether there is such a series.
func (m Metrics) Lookup(name string, labels ...string) (sum float64, found bool) {
	for series, value := range m {
		base, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		has := "," + rest + ","
		missing := func(label string) bool { return !strings.Contains(has, ","+label+",") }
		if base == name && !slices.ContainsFunc(labels, missing) {
			sum, found = sum+value, true
		}
	}
	return sum, found
}
