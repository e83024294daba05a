package app

import (
	"slices"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	queryv1alpha1 "github.com/eventd/eventd/pkg/query/v1alpha1"
)

// rulesOf returns the rules of a configuration, for a status.
func rulesOf(config *v1alpha1.EventdConfiguration) (out []queryv1alpha1.RuleStatus) {
	for _, r := range config.Intake {
		does := map[bool]string{false: queryv1alpha1.DoesBudget, true: queryv1alpha1.DoesDrop}[r.Drop]
		if r.DryRun {
			does = map[bool]string{false: queryv1alpha1.DoesWouldBudget, true: queryv1alpha1.DoesWouldDrop}[r.Drop]
		}
		out = append(out, queryv1alpha1.RuleStatus{Kind: queryv1alpha1.RuleIntake, Name: r.Name, Does: does, Match: r.Match})
	}
	for _, r := range config.Routes {
		does := queryv1alpha1.DoesDeliver
		if len(r.Receivers) == 0 {
			does = queryv1alpha1.DoesDrop
		}
		out = append(out, queryv1alpha1.RuleStatus{
			Kind: queryv1alpha1.RuleRoute, Name: r.Name, Does: does, Match: r.Match, Receivers: slices.Clone(r.Receivers), Continue: r.Continue,
		})
	}
	for _, m := range config.Metrics {
		out = append(out, queryv1alpha1.RuleStatus{Kind: queryv1alpha1.RuleMetric, Name: m.Name, Does: queryv1alpha1.DoesCount, Match: m.Match})
	}
	return out
}

// ruleStatus returns the rules in force.
func (c *configuration) ruleStatus() []queryv1alpha1.RuleStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rules)
}
