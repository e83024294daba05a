package rules

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

func TestMetricMatchesAndReadsItsLabels(t *testing.T) {
	set := mustCompile(t, &v1alpha1.EventdConfiguration{Metrics: []v1alpha1.Metric{
		{Name: "back_offs", Match: `event.reason == "BackOff"`, Labels: map[string]string{"namespace": "metadata.namespace", "component": "reportingComponent", "team": `metadata.labels["a"]`}},
		{Name: "events"},
		{Name: "failing", Match: `event.metadata.labels["none"] == ""`},
	}})
	metrics := set.Metrics()
	if m := metrics[0]; !slices.Equal(m.LabelNames(), []string{"component", "namespace", "team"}) || !m.Match(full()) || m.Match(&corev1.Event{}) ||
		!slices.Equal(m.LabelValues(full()), []string{"kubelet", "shop", "b"}) {
		t.Errorf("labels %q are %q", m.LabelNames(), m.LabelValues(full()))
	}
	if m := metrics[1]; !m.Match(&corev1.Event{}) || len(m.LabelValues(full())) != 0 || m.Definition().Name != "events" {
		t.Errorf("%v has %q", m.Definition(), m.LabelValues(full()))
	}
	if result, err := metrics[2].Evaluate(full()); result != Failed || err == nil || metrics[2].Match(full()) {
		t.Errorf("%s, %v", result, err)
	}
}

func TestWrongExpressionOfAMetricIsNamed(t *testing.T) {
	_, err := Compile(&v1alpha1.EventdConfiguration{
		Routes:  []v1alpha1.Route{{Name: "a", Match: "event.foo"}},
		Metrics: []v1alpha1.Metric{{Name: "a"}, {Name: "b", Match: "event.bar"}},
	})
	if err == nil || !strings.Contains(err.Error(), "routes[0].match") || !strings.Contains(err.Error(), "metrics[1].match: Invalid value: 1:6: undefined field 'bar'") {
		t.Error(err)
	}
}
