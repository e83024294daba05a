package query

import (
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// timeline answers from what was found in the history of this replica.
func timeline(q *query, found history.Result) *v1alpha1.Timeline {
	items, truncated := last(itemsOf(found.Versions), q.limit)
	return &v1alpha1.Timeline{
		TypeMeta:   typeMeta("Timeline"),
		ListMeta:   metav1.ListMeta{ResourceVersion: found.ResourceVersion},
		KnownSince: metav1.NewMicroTime(found.KnownSince),
		Truncated:  truncated || found.Truncated,
		Items:      items,
	}
}

// list reads the history, which has limits of its own: a query that waits there keeps nobody from being
// answered. Its caller releases the result.
func (a *API) list(ctx context.Context, q *query, of history.Query) (found history.Result, err error) {
	q.wait(ctx, func() { found, err = a.options.History.List(ctx, of) })
	switch {
	case errors.Is(err, history.ErrBusy):
		return found, apierrors.NewTooManyRequests(err.Error(), 1)
	case err == nil && ctx.Err() != nil:
		found.Release()
		return found, context.Cause(ctx)
	}
	return found, err
}

func itemsOf(versions []observer.Version) []v1alpha1.TimelineItem {
	items := make([]v1alpha1.TimelineItem, len(versions))
	for i, v := range versions {
		items[i] = itemOf(v)
	}
	return items
}

// itemOf returns a version with its texts cut.
func itemOf(v observer.Version) v1alpha1.TimelineItem {
	e := v.Event
	return v1alpha1.TimelineItem{
		ID:              short(v.ID()),
		ResourceVersion: short(e.ResourceVersion),
		Observed:        metav1.NewMicroTime(v.Observed),
		Namespace:       e.Namespace,
		Name:            short(e.Name),
		Regarding: v1alpha1.ObjectReference{
			Group: short(eventfields.Group(e.InvolvedObject.APIVersion)), Kind: short(e.InvolvedObject.Kind), Namespace: short(e.InvolvedObject.Namespace),
			Name: short(e.InvolvedObject.Name), UID: types.UID(short(string(e.InvolvedObject.UID))),
			FieldPath: short(e.InvolvedObject.FieldPath),
		},
		Type:     short(e.Type),
		Reason:   short(e.Reason),
		Message:  truncate.String(e.Message, maxMessage),
		Reporter: short(eventfields.Reporter(e)),
		Instance: short(cmp.Or(e.ReportingInstance, e.Source.Host)),
		Count:    int64(eventfields.Count(e)),
		First:    metav1.NewMicroTime(cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)),
		Last:     metav1.NewMicroTime(eventfields.LastTime(e)),
	}
}
