// Package apiclient sends single requests for Events to the apiserver, and classifies
// the answers.
//
// A Client makes each request once and does not retry it: client-go's own retries would
// occupy a slot of the caller, and hide the answer to the first attempt. Its errors tell
// whether the request may have taken effect. Classify evaluates them, so that the caller
// decides from a Class and no other code depends on how the apiserver words a refusal.
//
// A Client from NewForConfig owns its connections and shares them with nobody. It needs
// no Close: idle connections end after 90 seconds, and what client-go runs to follow
// certificate files ends when the Client is garbage. All functions and methods are safe
// for concurrent use.
package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptrace"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Client creates, changes and reads Events through core/v1 and events.k8s.io/v1. Events
// are in the form of core/v1 in either case.
type Client struct {
	connections []*connection
}

// New returns a Client that uses client-go's REST clients of core/v1 and of
// events.k8s.io/v1.
func New(core, events rest.Interface) *Client {
	return &Client{[]*connection{{core: core, events: events}}}
}

// Create creates an Event.
func (c *Client) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	var body runtime.Object = event
	if api == occurrence.EventsV1 {
		body = identity.ToEventsV1(event)
	}
	return send(ctx, c, func(conn *connection) (*corev1.Event, error) {
		return conn.do(ctx, conn.of(api).Post().Body(body), event.Namespace, api)
	})
}

// Patch applies a strategic merge patch.
func (c *Client) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return send(ctx, c, func(conn *connection) (*corev1.Event, error) {
		return conn.do(ctx, conn.of(api).Patch(types.StrategicMergePatchType).Name(name).Body(patch), namespace, api)
	})
}

// Get returns the JSON of an Event.
func (c *Client) Get(ctx context.Context, api occurrence.API, namespace, name string) ([]byte, error) {
	return send(ctx, c, func(conn *connection) ([]byte, error) {
		r := conn.of(api).Get().Name(name).SetHeader("Accept", runtime.ContentTypeJSON)
		result, err := conn.send(ctx, r, namespace, api, rest.Result.Error)
		if err != nil {
			return nil, err
		}
		return result.Raw()
	})
}

// Update replaces an Event by the JSON of one.
func (c *Client) Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	return send(ctx, c, func(conn *connection) (*corev1.Event, error) {
		r := conn.of(api).Put().Name(name).UseProtobufAsDefault().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(event)
		return conn.do(ctx, r, namespace, api)
	})
}

// Decode reads the JSON of an Event of an API.
func Decode(api occurrence.API, event []byte) (*corev1.Event, error) {
	if api == occurrence.EventsV1 {
		var out eventsv1.Event
		err := json.Unmarshal(event, &out)
		return identity.ToCoreV1(&out), err
	}
	var out corev1.Event
	err := json.Unmarshal(event, &out)
	return &out, err
}

func (c *connection) of(api occurrence.API) rest.Interface {
	if api == occurrence.EventsV1 {
		return c.events
	}
	return c.core
}

// do makes one request whose answer is an Event.
func (c *connection) do(ctx context.Context, r *rest.Request, namespace string, api occurrence.API) (*corev1.Event, error) {
	var core corev1.Event
	var events eventsv1.Event
	var into runtime.Object = &core
	if api == occurrence.EventsV1 {
		into = &events
	}
	// UseProtobufAsDefault is what typed clients do if no content type is configured.
	_, err := c.send(ctx, r.UseProtobufAsDefault(), namespace, api, func(r rest.Result) error { return r.Into(into) })
	if err != nil {
		return nil, err
	}
	if api == occurrence.EventsV1 {
		return identity.ToCoreV1(&events), nil
	}
	return &core, nil
}

// send makes one request, and reads the error from the result.
func (c *connection) send(ctx context.Context, r *rest.Request, namespace string, api occurrence.API, readError func(rest.Result) error) (rest.Result, error) {
	t := trace{complete: c.traced}
	if limiter := c.of(api).GetRateLimiter(); limiter != nil {
		r.Throttle(&tracedLimiter{limiter, &t})
	}
	r = r.MaxRetries(0).Namespace(namespace).Resource("events")
	if err := r.Error(); err != nil { // the namespace or name can't be part of a URL
		return rest.Result{}, &UnsentError{err, ClassRefused}
	}
	result := r.Do(t.attach(ctx))
	if err := readError(result); err != nil {
		switch {
		case !t.mayBeSent():
			return result, &UnsentError{err, ClassUnreachable}
		case t.connected.Load():
			err = &sentError{err}
		}
		return result, withRetryAfter(err, result)
	}
	return result, nil
}

// withRetryAfter adds the value of the header Retry-After to an error. client-go ignores
// the header if the body is a Status.
func withRetryAfter(err error, result rest.Result) error {
	_, withoutBody := result.Raw()
	seconds, _ := apierrors.SuggestsClientDelay(withoutBody)
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || seconds == 0 {
		return err
	}
	details := &metav1.StatusDetails{}
	if status.ErrStatus.Details != nil {
		details = status.ErrStatus.Details
	}
	if details.RetryAfterSeconds == 0 {
		details.RetryAfterSeconds = int32(seconds)
	}
	status.ErrStatus.Details = details
	return err
}

// UnsentError is the error of a request that never had a connection, so that it did not
// take effect.
type UnsentError struct {
	Err   error
	Class Class
}

func (e *UnsentError) Error() string { return e.Err.Error() }

func (e *UnsentError) Unwrap() error { return e.Err }

// sentError is the error of a request that had a connection. A retry of it by the
// transport may have failed in another way.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// trace records how far a request got.
type trace struct {
	// complete: the transport reports every connection that it uses. Without that, a
	// request may have been sent unnoticed.
	complete bool
	// throttled: its context ended in the client's rate limiter.
	throttled atomic.Bool
	// connecting and connected: net/http looked for a connection, and had one.
	connecting, connected atomic.Bool
}

func (t *trace) attach(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) },
	})
}

func (t *trace) mayBeSent() bool {
	return t.connected.Load() || !t.complete && !t.throttled.Load() && !t.connecting.Load()
}

// tracedLimiter is a client's rate limiter for one request.
type tracedLimiter struct {
	flowcontrol.RateLimiter
	trace *trace
}

// Wait implements flowcontrol.RateLimiter.
func (l *tracedLimiter) Wait(ctx context.Context) error {
	err := l.RateLimiter.Wait(ctx)
	if err != nil {
		l.trace.throttled.Store(true)
	}
	return err
}
