package describe_test

import (
	"testing"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

func TestStepsAreDescribedInWords(t *testing.T) {
	for _, test := range []struct {
		step v1alpha1.Step
		want describe.Description
	}{
		{v1alpha1.Step{Action: v1alpha1.ActionRecorded}, describe.Description{Text: "Recorded", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionFiltered, Rule: "noise"}, describe.Description{Text: "Filtered by the rule noise", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionWouldBe, Rule: "noise", Cause: "would_drop"},
			describe.Description{Text: "Would be filtered by the rule noise, a dry run", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionWouldBe, Rule: "noise", Cause: v1alpha1.CauseWouldBudget},
			describe.Description{Text: "Would have the budget of the rule noise, a dry run", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionDeferred, Cause: "spaced"},
			describe.Description{Text: "Deferred: its series was written a moment ago", Reason: "spaced", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionDeferred, Cause: "newer"}, describe.Description{Text: "Deferred", Reason: "newer", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionSettled, Outcome: "merged"}, describe.Description{Text: "Counted on the stored Event", Tone: "good"}},
		{v1alpha1.Step{Action: v1alpha1.ActionSettled, Outcome: "dropped", Cause: "forbidden", Detail: "quota"},
			describe.Description{Text: "Dropped", Reason: "forbidden", Detail: "quota", Tone: "bad"}},
		{v1alpha1.Step{Action: v1alpha1.ActionSettled, Outcome: "newer"}, describe.Description{Text: "Settled: newer", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionUnrouted, Receiver: "loki", Rule: "quiet"},
			describe.Description{Text: "Not delivered to loki, by the route quiet", Tone: "neutral"}},
		// Of one who is no operator.
		{v1alpha1.Step{Action: v1alpha1.ActionFiltered}, describe.Description{Text: "Filtered by a rule", Tone: "neutral"}},
		{v1alpha1.Step{Action: v1alpha1.ActionDelivered}, describe.Description{Text: "Delivered", Tone: "good"}},
		{v1alpha1.Step{Action: v1alpha1.ActionUnrouted}, describe.Description{Text: "Not delivered", Tone: "neutral"}},
		{v1alpha1.Step{Action: "newer", Cause: "c"}, describe.Description{Text: "newer", Reason: "c", Tone: "neutral"}},
	} {
		if got := describe.Step(test.step); got != test.want {
			t.Errorf("%s %s: got %+v, not %+v", test.step.Action, test.step.Outcome, got, test.want)
		}
	}
}
