package query

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
)

// why answers from the trail of this replica and, if it has one, its history.
func (a *API) why(ctx context.Context, q *query) (*v1alpha1.Explanation, error) {
	steps, since, forgotten := a.options.Trail.Why(a.ofTrail(q))
	steps, truncated := newest(steps)
	out := &v1alpha1.Explanation{
		TypeMeta:   typeMeta("Explanation"),
		Object:     q.Object,
		KnownSince: metav1.NewMicroTime(since),
		Forgotten:  forgotten || truncated,
		Leader:     a.identity(),
		Steps:      notNil(steps),
	}
	if len(q.Namespaces) == 1 {
		out.Object.Namespace = q.Namespaces[0]
	}
	if a.options.History == nil {
		return out, nil
	}
	found, err := a.options.History.List(ctx, history.Query{
		Namespaces: q.Namespaces, Object: history.Object(q.Object), Limit: q.limit,
	})
	if err != nil {
		return nil, err
	}
	out.Events, _ = newest(itemsOf(found.Versions))
	return out, nil
}

// drops answers from the trail of this replica.
func (a *API) drops(q *query) *v1alpha1.DropList {
	steps, since := a.options.Trail.Drops(a.ofTrail(q))
	return &v1alpha1.DropList{
		TypeMeta:   typeMeta("DropList"),
		KnownSince: metav1.NewMicroTime(since),
		Leader:     a.identity(),
		Items:      notNil(first(steps)),
	}
}

// top answers from the trail of this replica.
func (a *API) top(q *query) *v1alpha1.Top {
	out := a.options.Trail.Top(trail.TopQuery{Namespaces: q.Namespaces, By: q.by, Window: q.window, Limit: q.limit})
	out.TypeMeta = typeMeta("Top")
	out.Items = notNil(out.Items)
	return &out
}

func (a *API) ofTrail(q *query) trail.Query {
	return trail.Query{Namespaces: q.Namespaces, Object: trail.Object(q.Object), Limit: q.limit}
}

// identity is that of this replica, which answers.
func (a *API) identity() string { return a.options.Status().Replica.Identity }

// notNil makes an empty list an empty array in JSON.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
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
