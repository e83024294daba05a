package sink

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

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

// NewClient returns a Client that asks through client-go's REST clients of core/v1
// and of events.k8s.io/v1, as their typed clients' RESTClient methods return
// them. It needs the rights to create and to patch events, in the API groups
// that occurrences come for.
//
// client-go's own retries are switched off: they would wait in the place of
// other series, and hide which answer the first attempt got.
func NewClient(core, events rest.Interface) Client {
	return &client{core: core, events: events}
}

type client struct{ core, events rest.Interface }

func (c *client) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	if api == occurrence.EventsV1 {
		return do(ctx, c.events.Post().Body(identity.ToEventsV1(event)), event.Namespace, api)
	}
	return do(ctx, c.core.Post().Body(event), event.Namespace, api)
}

func (c *client) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	client := c.core
	if api == occurrence.EventsV1 {
		client = c.events
	}
	return do(ctx, client.Patch(types.StrategicMergePatchType).Name(name).Body(patch), namespace, api)
}

// do makes one request.
func do(ctx context.Context, r *rest.Request, namespace string, api occurrence.API) (*corev1.Event, error) {
	var core corev1.Event
	var events eventsv1.Event
	var into runtime.Object = &core
	if api == occurrence.EventsV1 {
		into = &events
	}
	ctx, sent := traced(ctx)
	// UseProtobufAsDefault is what typed clients do, if nothing else is chosen.
	err := r.UseProtobufAsDefault().MaxRetries(0).Namespace(namespace).Resource("events").Do(ctx).Into(into)
	if err != nil {
		if !sent() {
			err = &notSent{err}
		}
		return nil, err
	}
	if api == occurrence.EventsV1 {
		return identity.ToCoreV1(&events), nil
	}
	return &core, nil
}

// notSent is the error of a request that never had a connection, so that it did
// not take effect.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

// traced returns a context for one request, and what tells afterwards whether the
// request may have been sent. net/http tells when it looks for a connection and
// when it has one; a transport that tells of neither may have done anything.
func traced(ctx context.Context) (_ context.Context, sent func() bool) {
	var looks, has atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { looks.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { has.Store(true) },
	})
	return ctx, func() bool { return has.Load() || !looks.Load() }
}
