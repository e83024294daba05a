package query

import (
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	intakeMatches     = "eventd_intake_rule_occurrences_total"
	intakeEvaluations = "eventd_intake_rule_evaluations_total"
	routeEvaluations  = "eventd_route_evaluations_total"
	metricEvaluations = "eventd_metric_evaluations_total"
)

// ruleFigures are what rules have done.
var ruleFigures = []string{intakeMatches, intakeEvaluations, routeEvaluations, metricEvaluations}

// maxRuleMatch limits the expression of a rule in a status, which is sent again whenever it changes.
const maxRuleMatch = 256

// addRuleFigures adds the figures of a rule.
func addRuleFigures(to *v1alpha1.RuleStatus, r *reading) {
	metric, label, action := routeEvaluations, "route", [2]string{"result", "match"}
	evaluations := metric
	switch to.Kind {
	case v1alpha1.RuleIntake:
		metric, evaluations, label, action = intakeMatches, intakeEvaluations, "rule", [2]string{"action", to.Does}
	case v1alpha1.RuleMetric:
		metric, evaluations, label = metricEvaluations, metricEvaluations, "metric"
	}
	to.Match = truncate.String(to.Match, maxRuleMatch)
	to.Matched = v1alpha1.Figure{Metric: metric, Labels: map[string]string{label: to.Name, action[0]: action[1]}}
	if f := r.one(metric, label, to.Name, action[0], action[1]); f != nil {
		to.Matched = *f
	}
	for _, result := range []string{"error", "over_budget"} {
		if f := r.one(evaluations, label, to.Name, "result", result); f != nil && f.Value > 0 {
			to.Failed = append(to.Failed, *f)
		}
	}
}
