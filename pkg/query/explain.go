package query

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
)

// why answers from the trail of this replica and from what was found in its history, if it has one.
func (a *API) why(q *query, found history.Result) *v1alpha1.Explanation {
	of := ofTrail(q)
	known, since, forgotten := a.options.Trail.Why(of)
	steps, truncatedSteps := last(stepsOf(q.visible(known)), q.limit)
	truncatedSteps = truncatedSteps || len(known) == of.Limit
	out := &v1alpha1.Explanation{
		TypeMeta:   typeMeta("Explanation"),
		Object:     q.Object,
		KnownSince: metav1.NewMicroTime(since),
		Forgotten:  forgotten,
		Leader:     a.options.Identity,
		Role:       a.options.Role,
		Steps:      steps,
	}
	if len(q.Namespaces) == 1 {
		out.Object.Namespace = q.Namespaces[0]
	}
	events, truncatedEvents := last(itemsOf(found.Versions), q.limit)
	out.Events, out.Truncated = events, truncatedSteps || truncatedEvents || found.Truncated
	return out
}

// drops answers from the trail of this replica.
func (a *API) drops(q *query) *v1alpha1.DropList {
	known, since := a.options.Trail.Drops(ofTrail(q))
	steps, truncated := first(stepsOf(q.visible(known)), q.limit)
	return &v1alpha1.DropList{
		TypeMeta:   typeMeta("DropList"),
		KnownSince: metav1.NewMicroTime(since),
		Leader:     a.options.Identity,
		Truncated:  truncated,
		Items:      steps,
	}
}

// top answers from the trail of this replica.
func (a *API) top(q *query) *v1alpha1.Top {
	found := a.options.Trail.Top(trail.TopQuery{Namespaces: q.Namespaces, By: q.by, Window: q.window, Limit: q.limit})
	out := &v1alpha1.Top{
		TypeMeta: typeMeta("Top"),
		Since:    metav1.NewMicroTime(found.Since), Until: metav1.NewMicroTime(found.Until),
		By: found.By, Occurrences: found.Occurrences, OnlyReported: a.options.History == nil, Role: a.options.Role,
		Items: make([]v1alpha1.TopItem, len(found.Items)),
	}
	for i, item := range found.Items {
		out.Items[i] = v1alpha1.TopItem{
			Object: (*v1alpha1.ObjectReference)(item.Object), Reason: item.Reason, Namespace: item.Namespace, Reporter: item.Reporter,
			Occurrences: item.Occurrences, Error: item.Error, Writes: item.Writes, Saved: item.Saved,
		}
	}
	return out
}

// visible returns what the caller may see of steps. Deliveries to several receivers are one step, the last, for those
// who may not see the receivers. That some receiver is not to have an Event is none, if another one is.
func (q *query) visible(steps []trail.Step) []trail.Step {
	if q.operator {
		return steps
	}
	isDelivery := func(s *trail.Step) bool {
		return s.Action == v1alpha1.ActionDelivered || s.Action == v1alpha1.ActionUnrouted
	}
	isNotRouted := func(s *trail.Step) bool {
		return s.Action == v1alpha1.ActionUnrouted && s.Cause == string(delivery.NotRouted)
	}
	routed := make(map[trail.Step]bool)
	for _, s := range steps {
		if isDelivery(&s) && !isNotRouted(&s) {
			routed[ofEvent(s)] = true
		}
	}
	deliveries := make(map[trail.Step]int)
	out := steps[:0]
	for _, s := range steps {
		if isNotRouted(&s) && routed[ofEvent(s)] {
			continue
		}
		s = withoutOperator(s)
		if isDelivery(&s) {
			same := ofEvent(s)
			same.Action = s.Action
			if i, ok := deliveries[same]; ok {
				s.Occurrences = max(s.Occurrences, out[i].Occurrences)
				if out[i].First.Before(s.First) {
					s.First = out[i].First
				}
				out[i] = trail.Step{}
			}
			deliveries[same] = len(out)
		}
		out = append(out, s)
	}
	return slices.DeleteFunc(out, func(s trail.Step) bool { return s == trail.Step{} })
}

// ofEvent returns what the deliveries of an Event have in common.
func ofEvent(s trail.Step) trail.Step {
	s = withoutOperator(s)
	s.Action, s.First, s.Time, s.Occurrences = "", time.Time{}, time.Time{}, 0
	return s
}

// withoutOperator returns a step without what belongs to the operator: the names of receivers, routes and rules, and
// what destinations answer.
func withoutOperator(s trail.Step) trail.Step {
	s.Rule, s.Receiver = "", ""
	if s.Action == v1alpha1.ActionDelivered || s.Action == v1alpha1.ActionUnrouted {
		s.Cause, s.Detail = "", ""
	}
	return s
}

// stepsOf returns steps of the trail for an answer.
func stepsOf(steps []trail.Step) []v1alpha1.Step {
	out := make([]v1alpha1.Step, len(steps))
	for i := range steps {
		out[i] = stepOf(&steps[i])
	}
	return out
}

func stepOf(s *trail.Step) v1alpha1.Step {
	out := v1alpha1.Step{
		Time: metav1.NewMicroTime(s.Time), Action: s.Action, Occurrences: s.Occurrences,
		Outcome: s.Outcome, Cause: s.Cause, Detail: s.Detail, Rule: s.Rule, Receiver: s.Receiver, User: s.User,
		Namespace: s.Namespace, Event: s.Event, Regarding: v1alpha1.ObjectReference(s.Regarding),
		Type: s.Type, Reason: s.Reason, Message: s.Message, Reporter: s.Reporter,
	}
	if !s.First.Equal(s.Time) {
		out.First = new(metav1.NewMicroTime(s.First))
	}
	if !s.Until.IsZero() {
		out.Until = new(metav1.NewMicroTime(s.Until))
	}
	return out
}

// hiddenSteps is how many steps of a trail may be one that is visible.
const hiddenSteps = 16

// ofTrail asks for one step more than the limit, to see whether there are more.
func ofTrail(q *query) trail.Query {
	limit := q.limit + 1
	if !q.operator {
		limit *= hiddenSteps
	}
	return trail.Query{Namespaces: q.Namespaces, Object: trail.Object(q.Object), Limit: limit}
}

// withoutTimes returns an answer without what changes by itself, to compare it with the one before.
func withoutTimes(object any) any {
	switch o := object.(type) {
	case *v1alpha1.PipelineStatus:
		same := *o
		same.Time = metav1.MicroTime{}
		return &same
	case *v1alpha1.Top:
		same := *o
		same.Since, same.Until = metav1.MicroTime{}, metav1.MicroTime{}
		return &same
	default:
		return object
	}
}
