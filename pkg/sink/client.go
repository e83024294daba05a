package sink

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// Client asks the apiserver through one of the two APIs. Events are in the form
// of core/v1 in either case. Errors are those of client-go. It must be safe for
// use by many goroutines.
type Client interface {
	Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error)
	// Patch applies a strategic merge patch that both APIs read the same.
	Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error)
}

// NewClient returns a Client on top of client-go's. It needs the rights to
// create and to patch events, in the API groups that occurrences come for.
func NewClient(core typedcorev1.EventsGetter, events typedeventsv1.EventsGetter) Client {
	return &client{core: core, events: events}
}

type client struct {
	core   typedcorev1.EventsGetter
	events typedeventsv1.EventsGetter
}

func (c *client) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	if api == occurrence.EventsV1 {
		out, err := c.events.Events(event.Namespace).Create(ctx, identity.ToEventsV1(event), metav1.CreateOptions{})
		return coreOrNil(out, err)
	}
	return c.core.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

func (c *client) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	if api == occurrence.EventsV1 {
		out, err := c.events.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return coreOrNil(out, err)
	}
	return c.core.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

func coreOrNil(event *eventsv1.Event, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}
	return identity.ToCoreV1(event), nil
}
