// Package describe says in words what eventd has done, the same for the terminal and for the page. It has no state.
package describe

import "github.com/eventd/eventd/pkg/query/v1alpha1"

// Description is a step in words. Those of steps that did the same are equal, apart from Detail.
type Description struct {
	// Text says what was done, Reason why: a label of /metrics, Detail in the words of others.
	Text, Reason, Detail string
	// Tone is good, bad or neutral: it has a shape and a colour.
	Tone string
}

// outcomes are those of eventd_occurrences_settled_total.
var outcomes = map[string]Description{
	"created":      {Text: "Stored as a new Event", Tone: "good"},
	"merged":       {Text: "Counted on the stored Event", Tone: "good"},
	"aggregated":   {Text: "Counted on the combined Event of its group", Tone: "good"},
	"replayed":     {Text: "Reported again, counted before", Tone: "neutral"},
	"found":        {Text: "Counted by another replica", Tone: "good"},
	"handed_over":  {Text: "Left to the next leader", Tone: "neutral"},
	"acknowledged": {Text: "Accepted by another eventd", Tone: "good"},
	"filtered":     {Text: "Filtered by a rule", Tone: "neutral"},
	"dropped":      {Text: "Dropped", Tone: "bad"},
	"uncertain":    {Text: "Uncertain: it may be stored", Tone: "bad"},
}

// causes of deferrals are those of eventd_correlator_deferred_total.
var causes = map[string]string{
	"budget":   "Deferred: its source has spent the budget for this object",
	"spaced":   "Deferred: its series was written a moment ago",
	"settling": "Deferred: the final count of its series is awaited",
}

// Step says what a step has done. An action that is newer than this package is its own text.
func Step(s v1alpha1.Step) Description {
	d := Description{Reason: s.Cause, Detail: s.Detail, Tone: "neutral"}
	switch s.Action {
	case v1alpha1.ActionRecorded:
		d.Text = "Recorded"
	case v1alpha1.ActionFiltered:
		d.Text = "Filtered by " + rule(s)
	case v1alpha1.ActionWouldBe:
		d.Text, d.Reason = "Would be filtered by "+rule(s)+", a dry run", ""
		if s.Cause == v1alpha1.CauseWouldBudget {
			d.Text = "Would have the budget of " + rule(s) + ", a dry run"
		}
	case v1alpha1.ActionMerged:
		d.Text = "Merged into its series"
	case v1alpha1.ActionAggregated:
		d.Text = "Combined with others of its group"
	case v1alpha1.ActionDeferred:
		if d.Text = causes[s.Cause]; d.Text == "" {
			d.Text = "Deferred"
		}
	case v1alpha1.ActionSettled:
		known, ok := outcomes[s.Outcome]
		if d.Text, d.Tone = known.Text, known.Tone; !ok {
			d.Text, d.Tone = "Settled: "+s.Outcome, "neutral"
		}
	case v1alpha1.ActionDelivered:
		d.Text, d.Tone = "Delivered"+to(s), "good"
	case v1alpha1.ActionUnrouted:
		d.Text = "Not delivered" + to(s)
		if s.Rule != "" {
			d.Text += ", by the route " + s.Rule
		}
	default:
		d.Text = s.Action
	}
	return d
}

// Message returns the message of an Event or a step with the part of the object that it is about, such as a container, as
// kubectl describe does.
func Message(regarding v1alpha1.ObjectReference, message string) string {
	if regarding.FieldPath == "" {
		return message
	}
	return regarding.FieldPath + ": " + message
}

// rule names a rule, and to a receiver. Only operators get their names.
func rule(s v1alpha1.Step) string {
	if s.Rule == "" {
		return "a rule"
	}
	return "the rule " + s.Rule
}

func to(s v1alpha1.Step) string {
	if s.Receiver == "" {
		return ""
	}
	return " to " + s.Receiver
}
