package main

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/eventd/eventd/internal/identity"
	storedevents "github.com/eventd/eventd/test/stored"
)

// stored are the Events in the apiserver, by a watch.
type stored struct {
	informer cache.SharedIndexInformer
	gone     atomic.Int64 // Events of eventd that were deleted, or expired
}

// watchStored begins to watch the Events of the feeder, until ctx ends. It calls forget with the UID of
// each that is no longer stored.
func watchStored(ctx context.Context, client kubernetes.Interface, forget func(uid string)) (*stored, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(demoNamespace))
	s := &stored{informer: factory.Core().V1().Events().Informer()}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			if event, ok := object.(*corev1.Event); ok {
				s.gone.Add(int64(len(ofEventd([]*corev1.Event{event}))))
				forget(string(event.UID))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
		return nil, ctx.Err()
	}
	return s, nil
}

// events returns the stored Events, the one that changed last first.
func (s *stored) events() []*corev1.Event {
	var events []*corev1.Event
	for _, object := range s.informer.GetStore().List() {
		events = append(events, object.(*corev1.Event))
	}
	slices.SortFunc(events, func(a, b *corev1.Event) int {
		return cmp.Or(lastSeen(b).Compare(lastSeen(a)), cmp.Compare(a.Name, b.Name))
	})
	return events
}

// ofEventd returns the Events that eventd has created. Others may be written to the apiserver directly, and no
// metric of eventd counts them.
func ofEventd(events []*corev1.Event) []*corev1.Event {
	return slices.DeleteFunc(slices.Clone(events), func(event *corev1.Event) bool { return event.Annotations[identity.Annotation] == "" })
}

func total(events []*corev1.Event) (sum int64) {
	for _, event := range events {
		sum += storedevents.Count(event)
	}
	return sum
}

func lastSeen(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	default:
		return event.EventTime.Time
	}
}
