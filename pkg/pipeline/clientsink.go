package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/pkg/sink/remote"
)

var errNoSink = errors.New("the sink, or its client, is nil")

// target is what a writer writes to.
type target struct {
	client sink.Client
	remote remote.Client // of an eventd, in place of client
	// server is the URL of the apiserver, "" if it is unknown.
	server  string
	options sink.Options
}

// recordTarget returns the target of a sink of a record.EventBroadcaster.
func recordTarget(to record.EventSink, known *traitsCache, o sink.Options) (target, error) {
	switch to := to.(type) {
	case nil:
		return target{}, errNoSink
	case *typedcorev1.EventSinkImpl:
		if to == nil || to.Interface == nil {
			return target{}, errNoSink
		}
		c, ok := to.Interface.(restClient)
		if !ok { // a fake
			return target{client: coreEvents{to.Interface}, options: o}, nil
		}
		return target{
			client:  &coreREST{scopes: []scope{{c.GetNamespace(), sink.NewClient(c.GetClient(), nil)}}},
			server:  c.GetClient().Get().URL().String(),
			options: withinLimit(o, c.GetClient()),
		}, nil
	default:
		client, err := newCustomSink(recordCalls{to}, known.of(to), o)
		return target{client: client, options: o}, err
	}
}

// eventsTarget returns the target of a sink of an events.EventBroadcaster.
func eventsTarget(to events.EventSink, known *traitsCache, o sink.Options) (target, error) {
	switch to := to.(type) {
	case nil:
		return target{}, errNoSink
	case *events.EventSinkImpl:
		if to == nil || to.Interface == nil {
			return target{}, errNoSink
		}
		// All Events of this broadcaster are for events.k8s.io.
		c, ok := to.Interface.RESTClient().(*rest.RESTClient)
		if !ok || c == nil { // a fake
			return target{client: eventsEvents{to.Interface}, options: o}, nil
		}
		return target{client: sink.NewClient(nil, c), options: withinLimit(o, c)}, nil
	default:
		client, err := newCustomSink(eventsCalls{to}, known.of(to), o)
		return target{client: client, options: o}, err
	}
}

// restClient is implemented by the client of client-go's typed core/v1 events.
type restClient interface {
	GetClient() rest.Interface
	GetNamespace() string
}

// noLimit is the type of client-go's rate limiter without a limit.
var noLimit = reflect.TypeOf(flowcontrol.NewFakeAlwaysRateLimiter())

// withinLimit limits the sink to half of the client's rate limit. Otherwise the requests of
// the sink would delay those of the controller that uses the same client.
func withinLimit(o sink.Options, c rest.Interface) sink.Options {
	limiter := c.GetRateLimiter()
	if limiter == nil || reflect.TypeOf(limiter) == noLimit || limiter.QPS() <= 0 {
		return o
	}
	o.QPS = min(o.QPS, float64(limiter.QPS())/2)
	o.Burst = min(o.Burst, max(1, int(o.QPS)))
	return o
}

// coreREST has the REST clients of client-go's EventSinkImpls for one apiserver, each for
// one namespace or for all. Both kinds of Events are written through core/v1.
type coreREST struct {
	mu     sync.RWMutex
	scopes []scope
}

// scope is a client for a namespace, "" for all.
type scope struct {
	namespace string
	client    sink.Updater
}

// join adds the namespaces of another.
func (c *coreREST) join(other *coreREST) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range other.scopes {
		if !slices.ContainsFunc(c.scopes, func(own scope) bool { return own.namespace == s.namespace }) {
			c.scopes = append(c.scopes, s)
		}
	}
}

func (c *coreREST) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	client, err := c.clientFor(event.Namespace)
	if err != nil {
		return nil, err
	}
	return client.Create(ctx, occurrence.CoreV1, event)
}

func (c *coreREST) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	client, err := c.clientFor(namespace)
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, occurrence.CoreV1, namespace, name, patch)
}

// Get implements sink.Updater.
func (c *coreREST) Get(ctx context.Context, _ occurrence.API, namespace, name string) ([]byte, error) {
	client, err := c.clientFor(namespace)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, occurrence.CoreV1, namespace, name)
}

// Update implements sink.Updater.
func (c *coreREST) Update(ctx context.Context, _ occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	client, err := c.clientFor(namespace)
	if err != nil {
		return nil, err
	}
	return client.Update(ctx, occurrence.CoreV1, namespace, name, event)
}

func (c *coreREST) clientFor(namespace string) (sink.Updater, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.scopes {
		if s.namespace == "" || s.namespace == namespace {
			return s.client, nil
		}
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("there is no client for namespace %q", namespace))
}

// eventsEvents is a client of events.k8s.io without a REST client, such as a fake.
type eventsEvents struct{ events typedeventsv1.EventsGetter }

func (c eventsEvents) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return coreV1(c.events.Events(event.Namespace).Create(ctx, identity.ToEventsV1(event), metav1.CreateOptions{}))
}

func (c eventsEvents) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return coreV1(c.events.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}))
}

func coreV1(event *eventsv1.Event, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}
	return identity.ToCoreV1(event), nil
}

// coreEvents is a client of core/v1 without a REST client, such as a fake.
type coreEvents struct{ events typedcorev1.EventInterface }

func (c coreEvents) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return answerOf(c.events.CreateWithEventNamespaceWithContext(ctx, event))
}

func (c coreEvents) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return answerOf(c.events.PatchWithEventNamespaceWithContext(ctx, event, patch))
}

// answerOf converts the untyped error that a client for one namespace returns for others
// (client-go kubernetes/typed/core/v1/event_expansion.go) to one that is not retried.
func answerOf(event *corev1.Event, err error) (*corev1.Event, error) {
	if err == nil {
		return event, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) && strings.HasPrefix(err.Error(), "can't ") {
		err = apierrors.NewBadRequest(err.Error())
	}
	return nil, err
}

// recordCalls calls a custom record.EventSink.
type recordCalls struct{ sink record.EventSink }

func (c recordCalls) create(_ context.Context, event *corev1.Event) (*corev1.Event, error) {
	return c.sink.Create(event)
}

func (c recordCalls) patch(_ context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return c.sink.Patch(event, patch)
}

// eventsCalls calls a custom events.EventSink.
type eventsCalls struct{ sink events.EventSink }

func (c eventsCalls) create(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	out, err := c.sink.Create(ctx, identity.ToEventsV1(event))
	if out == nil {
		return nil, err
	}
	return identity.ToCoreV1(out), err
}

func (c eventsCalls) patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	out, err := c.sink.Patch(ctx, identity.ToEventsV1(event), patch)
	if out == nil {
		return nil, err
	}
	return identity.ToCoreV1(out), err
}
