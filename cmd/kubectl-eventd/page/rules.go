package page

import (
	"slices"
	"strings"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// rule is a row of the rules.
type rule struct {
	v1alpha1.RuleStatus
	// What says what it does, Examples leads to the latest of what it did.
	What, Examples string
	DryRun         bool
	Matched        *figure
	Failed         []*figure
}

// ruleKind has the rules of a kind.
type ruleKind struct {
	Title, Hint, Unit string
	Rules             []rule
}

// ruleKinds are in the order in which they are shown. Kinds of a newer eventd come last.
var ruleKinds = []struct{ kind, title, hint, unit string }{
	{v1alpha1.RuleIntake, "Intake rules", "decide on what clients report", "occurrences"},
	{v1alpha1.RuleRoute, "Routes", "decide which receivers get what is stored", "evaluations, one for each receiver"},
	{v1alpha1.RuleMetric, "Metrics", "count what is stored", "evaluations"},
}

func newRules(all []v1alpha1.RuleStatus) (out []ruleKind) {
	for _, known := range ruleKinds {
		kind := ruleKind{Title: known.title, Hint: known.hint, Unit: known.unit}
		for _, r := range all {
			if r.Kind == known.kind {
				kind.Rules = append(kind.Rules, newRule(r))
			}
		}
		if kind.Rules != nil {
			out = append(out, kind)
		}
	}
	return out
}

// does has the words for what intake rules and metrics do.
var does = map[string]string{
	v1alpha1.DoesDrop: "drops", v1alpha1.DoesBudget: "sets a budget", v1alpha1.DoesCount: "counts",
	v1alpha1.DoesWouldDrop: "would drop", v1alpha1.DoesWouldBudget: "would set a budget",
}

// failures has the words for results of evaluations.
var failures = map[string]string{"error": "evaluations fail", "over_budget": "evaluations cost too much"}

func newRule(r v1alpha1.RuleStatus) rule {
	out := rule{RuleStatus: r, What: does[r.Does], Matched: newFigure(r.Matched)}
	switch {
	case r.Does == v1alpha1.DoesDeliver:
		out.What = "to " + strings.Join(r.Receivers, ", ")
		if r.Continue {
			out.What += ", and goes on"
		}
	case r.Kind == v1alpha1.RuleRoute:
		out.What = "to no receiver"
	case out.What == "":
		out.What = strings.ReplaceAll(r.Does, "_", " ")
	}
	out.DryRun = r.Does == v1alpha1.DoesWouldDrop || r.Does == v1alpha1.DoesWouldBudget
	if out.DryRun || r.Kind == v1alpha1.RuleIntake && r.Does == v1alpha1.DoesDrop {
		out.Examples = link("/drops", "rule", r.Name)
	}
	for _, f := range r.Failed {
		failed := newFigure(f)
		if words := failures[f.Labels["result"]]; words != "" {
			failed.Name = words
		}
		out.Failed = append(out.Failed, failed)
	}
	return out
}

// failsNow reports whether an evaluation has failed in the last seconds.
func (r *rule) failsNow() bool {
	return slices.ContainsFunc(r.RuleStatus.Failed, func(f v1alpha1.Figure) bool { return f.PerSecond != nil && *f.PerSecond > 0 })
}
