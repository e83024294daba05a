package query

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// timeline answers from the history of this replica.
func (a *API) timeline(ctx context.Context, q *query) (*v1alpha1.Timeline, error) {
	found, err := a.options.History.List(ctx, history.Query{
		Namespaces: q.Namespaces, Object: history.Object(q.Object),
		Reason: q.reason, Type: q.eventType, Reporter: q.reporter,
		Since: q.since, Until: q.until, AllVersions: q.allVersions, Limit: q.limit,
	})
	if err != nil {
		return nil, err
	}
	items, truncated := newest(itemsOf(found.Versions))
	return &v1alpha1.Timeline{
		TypeMeta:   typeMeta("Timeline"),
		ListMeta:   metav1.ListMeta{ResourceVersion: found.ResourceVersion},
		KnownSince: metav1.NewMicroTime(found.KnownSince),
		Truncated:  truncated || found.Truncated,
		Items:      items,
	}, nil
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
	first := cmp.Or(e.FirstTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
	return v1alpha1.TimelineItem{
		ID:              short(v.ID()),
		ResourceVersion: short(e.ResourceVersion),
		Observed:        metav1.NewMicroTime(v.Observed),
		Namespace:       e.Namespace,
		Name:            short(e.Name),
		Regarding: v1alpha1.ObjectReference{
			Kind: short(e.InvolvedObject.Kind), Namespace: short(e.InvolvedObject.Namespace),
			Name: short(e.InvolvedObject.Name), UID: types.UID(short(string(e.InvolvedObject.UID))),
		},
		Type:     short(e.Type),
		Reason:   short(e.Reason),
		Message:  beginning(e.Message, maxMessage),
		Reporter: short(cmp.Or(e.ReportingController, e.Source.Component)),
		Instance: short(cmp.Or(e.ReportingInstance, e.Source.Host)),
		Count:    countOf(e),
		First:    metav1.NewMicroTime(first),
		Last:     metav1.NewMicroTime(lastOf(e, first)),
	}
}

// countOf is how often it happened. An Event with a series counts in the series only.
func countOf(e *corev1.Event) int64 {
	if e.Series != nil {
		return max(int64(e.Series.Count), 1)
	}
	return max(int64(e.Count), 1)
}

// lastOf is when it happened last.
func lastOf(e *corev1.Event, first time.Time) time.Time {
	if e.Series != nil && !e.Series.LastObservedTime.IsZero() {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, first)
}
