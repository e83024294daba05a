package sink

import (
	"context"
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
// that occurrences come for; what follows without the latter is told in
// docs/library.md. It is an Updater.
//
// client-go's own retries are switched off: they would wait in the place of
// other series, and hide which answer the first attempt got.
func NewClient(core, events rest.Interface) Updater {
	return &client{core: core, events: events}
}

type client struct {
	core, events rest.Interface
	// tells: whatever is sent is told to the trace of the request.
	tells bool
}

func (c *client) of(api occurrence.API) rest.Interface {
	if api == occurrence.EventsV1 {
		return c.events
	}
	return c.core
}

func (c *client) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	var body runtime.Object = event
	if api == occurrence.EventsV1 {
		body = identity.ToEventsV1(event)
	}
	return c.do(ctx, c.of(api).Post().Body(body), event.Namespace, api)
}

func (c *client) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return c.do(ctx, c.of(api).Patch(types.StrategicMergePatchType).Name(name).Body(patch), namespace, api)
}

// Get implements Updater.
func (c *client) Get(ctx context.Context, api occurrence.API, namespace, name string) ([]byte, error) {
	r := c.of(api).Get().Name(name).SetHeader("Accept", runtime.ContentTypeJSON)
	result, err := c.send(ctx, r, namespace, api, rest.Result.Error)
	if err != nil {
		return nil, err
	}
	return result.Raw()
}

// Update implements Updater.
func (c *client) Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	r := c.of(api).Put().Name(name).UseProtobufAsDefault().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(event)
	return c.do(ctx, r, namespace, api)
}

// do makes one request that is answered with an Event.
func (c *client) do(ctx context.Context, r *rest.Request, namespace string, api occurrence.API) (*corev1.Event, error) {
	var core corev1.Event
	var events eventsv1.Event
	var into runtime.Object = &core
	if api == occurrence.EventsV1 {
		into = &events
	}
	// UseProtobufAsDefault is what typed clients do, if nothing else is chosen.
	_, err := c.send(ctx, r.UseProtobufAsDefault(), namespace, api, func(r rest.Result) error { return r.Into(into) })
	if err != nil {
		return nil, err
	}
	if api == occurrence.EventsV1 {
		return identity.ToCoreV1(&events), nil
	}
	return &core, nil
}

// send makes one request, and takes the error from the result.
func (c *client) send(ctx context.Context, r *rest.Request, namespace string, api occurrence.API, take func(rest.Result) error) (rest.Result, error) {
	t := trace{all: c.tells}
	if limiter := c.of(api).GetRateLimiter(); limiter != nil {
		r.Throttle(&tracedLimiter{limiter, &t})
	}
	r = r.MaxRetries(0).Namespace(namespace).Resource("events")
	if err := r.Error(); err != nil { // no URL can have that namespace or name in it
		return rest.Result{}, &unsent{err, classRefused}
	}
	result := r.Do(t.follow(ctx))
	if err := take(result); err != nil {
		switch {
		case !t.mayBeSent():
			return result, &unsent{err, classUnreachable}
		case t.has.Load():
			err = &sent{err}
		}
		return result, withRetryAfter(err, result)
	}
	return result, nil
}

// withRetryAfter adds to an error what the header Retry-After says, which client-go
// leaves out if the body is a Status.
func withRetryAfter(err error, result rest.Result) error {
	_, bare := result.Raw() // the error without what the body says
	seconds, _ := apierrors.SuggestsClientDelay(bare)
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

// unsent is the error of a request that never had a connection, so that it did not
// take effect, and what that means for the write.
type unsent struct {
	error
	class class
}

func (e *unsent) Unwrap() error { return e.error }

// sent is the error of a request that had a connection, whatever became of it when
// something made it again.
type sent struct{ error }

func (e *sent) Unwrap() error { return e.error }

// trace is how far a request has got.
type trace struct {
	// all: the transport tells of every connection that it uses. Others may have done
	// anything.
	all bool
	// held: it was still in the client's rate limiter when it had to end.
	held atomic.Bool
	// net/http tells when it looks for a connection and when it has one.
	looks, has atomic.Bool
}

func (t *trace) follow(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.looks.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.has.Store(true) },
	})
}

// mayBeSent tells whether the request may have been sent.
func (t *trace) mayBeSent() bool {
	return t.has.Load() || !t.all && !t.held.Load() && !t.looks.Load()
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
		l.trace.held.Store(true)
	}
	return err
}
