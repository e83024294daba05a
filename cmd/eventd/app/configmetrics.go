package app

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/counters"
	"github.com/eventd/eventd/pkg/rules"
)

// metricLine is what a metric makes of an Event, as JSON.
type metricLine struct {
	Metric string       `json:"metric"`
	Result rules.Result `json:"result"`
	Error  string       `json:"error,omitempty"`
	// Series is that which counts the Event, while there are fewer than maxSeries.
	Series string `json:"series,omitempty"`
}

func explainMetrics(set *rules.Set, event *corev1.Event) (out []metricLine) {
	for _, m := range set.Metrics() {
		result, err := m.Evaluate(event)
		line := metricLine{Metric: m.Definition().Name, Result: result, Error: textOf(err)}
		if result == rules.Match {
			line.Series = seriesOf(m, event)
		}
		out = append(out, line)
	}
	return out
}

// seriesOf returns the name and labels of a series.
func seriesOf(m *rules.Metric, event *corev1.Event) string {
	var labels []string
	values := counters.LabelValues(m, event)
	for i, name := range m.LabelNames() {
		labels = append(labels, name+"="+strconv.Quote(values[i]))
	}
	return counters.Prefix + m.Definition().Name + "_total{" + strings.Join(labels, ", ") + "}"
}

func (e *explanation) writeMetrics(table io.Writer) {
	if len(e.Metrics) > 0 {
		_, _ = fmt.Fprintln(table, "METRIC\tRESULT")
	}
	for _, m := range e.Metrics {
		result := resultLine(m.Result, m.Error)
		if m.Series != "" {
			result += ": " + m.Series
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\n", m.Metric, result)
	}
}

func describeThrottle(t *v1alpha1.Throttle) string {
	return fmt.Sprintf("one per %s by %s", t.Interval.Duration, strings.Join(t.By, ", "))
}
