package rules

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

func TestMetricsAreThoseOfTheSetInForce(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	set := func(names ...string) *Set {
		config := &v1alpha1.EventdConfiguration{Receivers: []v1alpha1.Receiver{{Name: "all"}}}
		for _, name := range names {
			config.Routes = append(config.Routes, v1alpha1.Route{Name: name, Match: `event.message.matches("^(a+|aaaaaaaaaaaaaaaaaaaaaaa)+$") && event.metadata.labels["a"] == ""`, Receivers: []string{"all"}})
		}
		return mustCompile(t, config)
	}
	const help = "Evaluations of metrics of the configuration by result: match, no_match, error, over_budget. The last two do not match."
	want := func(lines ...string) {
		t.Helper()
		text := ""
		if len(lines) > 0 {
			text = "# HELP eventd_route_evaluations_total Evaluations of routes by result: match, no_match, error, over_budget. The last two do not match.\n" +
				"# TYPE eventd_route_evaluations_total counter\n" + strings.Join(lines, "\n") + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "eventd_route_evaluations_total"); err != nil {
			t.Error(err)
		}
	}
	want() // no set yet
	old := set("a", "b")
	m.Use(old)
	old.Route(&corev1.Event{Message: "b"})
	old.For("all").Deliver(&corev1.Event{Message: "a"})
	old.For("all").Deliver(&corev1.Event{Message: strings.Repeat("a", 1<<20)})
	each := func(route string, match, noMatch, failed, overBudget string) []string {
		return []string{
			`eventd_route_evaluations_total{result="error",route="` + route + `"} ` + failed,
			`eventd_route_evaluations_total{result="match",route="` + route + `"} ` + match,
			`eventd_route_evaluations_total{result="no_match",route="` + route + `"} ` + noMatch,
			`eventd_route_evaluations_total{result="over_budget",route="` + route + `"} ` + overBudget,
		}
	}
	want(append(each("a", "0", "1", "1", "1"), each("b", "0", "1", "1", "1")...)...)
	m.Use(set("b", "c"))
	old.Route(&corev1.Event{}) // by a worker that has not changed over yet
	want(append(each("b", "0", "0", "0", "0"), each("c", "0", "0", "0", "0")...)...)
	config := &v1alpha1.EventdConfiguration{Metrics: []v1alpha1.Metric{{Name: "events"}}}
	of := mustCompile(t, config)
	m.Use(of)
	of.Metrics()[0].Match(&corev1.Event{})
	text := "# HELP eventd_metric_evaluations_total " + help + "\n# TYPE eventd_metric_evaluations_total counter\n"
	for _, line := range []string{`"error"} 0`, `"match"} 1`, `"no_match"} 0`, `"over_budget"} 0`} {
		text += `eventd_metric_evaluations_total{metric="events",result=` + line + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
		t.Error(err)
	}
	if _, err := NewMetrics(registry); err == nil {
		t.Error("registered twice")
	}
	if m, err := NewMetrics(nil); m == nil || err != nil {
		t.Error(err)
	}
}
