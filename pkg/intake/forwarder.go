package intake

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Forwarder has one of several replicas, the leader, record the requests of all of
// them. It must be safe for use by many goroutines. internal/relay implements it.
type Forwarder interface {
	// IsPeer reports whether a token is that of a replica. An error that leaves that
	// open (Undecided) is answered 503, any other one 401.
	IsPeer(ctx context.Context, token string) (bool, error)
	// Begin is called when a create, update or patch has arrived.
	Begin() Forwarding
}

// Forwarding is how a Forwarder handles one request. The methods are called one after
// the other, by one goroutine. Errors are answered as those of a handler, but for
// context.Canceled: that client has gone.
type Forwarding interface {
	// AwaitLeader returns when a leader is known. It is called before authentication,
	// and not for requests of other replicas.
	AwaitLeader(ctx context.Context) error
	// Handle has this replica or the leader handle the request, and writes the response,
	// unless it returns an error.
	Handle(ctx context.Context, w http.ResponseWriter, r *Received) error
	// End is called once, at the end of the request.
	End()
}

// Received is a request that is authenticated, authorized and has arrived as a whole.
type Received struct {
	Request *http.Request
	Body    []byte
	// BodyTime is how long the client took to send the body.
	BodyTime time.Duration

	next http.HandlerFunc
}

// Handle has this process handle the request in a term, and reports whether it wrote
// the response. If not, nothing was recorded, because the term had ended. Then Handle
// may be called again.
func (r *Received) Handle(w http.ResponseWriter, term Term) bool {
	req := r.Request
	if bodyOf(req).Len() != len(r.Body) { // it has been handled before
		req = withBody(req, r.Body, r.BodyTime)
	}
	return handleInTerm(w, req, term, r.next)
}

// Unnamed reports whether the request creates an Event whose name is generated where it
// is recorded: to repeat it makes another Event.
func (r *Received) Unnamed() bool {
	if r.Request.Method != http.MethodPost || isBatch(r.Request) { // the Events of a batch have names
		return false
	}
	ctx := r.Request.Context()
	if d := &callOf(ctx).decoding; d.budget != nil {
		// By now, the request may be out of time.
		reserved, err := d.budget.reserve(context.WithoutCancel(ctx), d.cost)
		if err != nil {
			return true // it may be: the answer for one is right for all, if of less use
		}
		defer reserved.release()
	}
	info, ok := request.RequestInfoFrom(ctx)
	if !ok {
		return false
	}
	kind := schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: "Event"}
	return unnamed(r.Request.Header.Get("Content-Type"), r.Body, kind)
}

// unnamed decodes a body as the handlers do. The kind is that of a body without one.
func unnamed(contentType string, body []byte, kind schema.GroupVersionKind) bool {
	// By its type, not by how it begins: a body in YAML may look like one in JSON.
	format, err := negotiation.NegotiateInputSerializerForMediaType(contentType, false, codecs)
	if err != nil {
		return false // the leader does not decode it either
	}
	obj, _, err := format.Serializer.Decode(body, &kind, nil)
	if err != nil {
		return false
	}
	event, err := meta.Accessor(obj)
	return err == nil && event.GetName() == ""
}

// awaitLeader is before the authentication: without a leader, the apiserver may be
// down, and reviews slow.
func awaitLeader(next http.Handler, forwarder Forwarder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !recording(req) {
			next.ServeHTTP(w, req)
			return
		}
		f := forwarder.Begin()
		defer f.End()
		if !Forwarded(req) {
			ctx, cancel := early(req.Context())
			err := f.AwaitLeader(ctx)
			cancel()
			if err != nil {
				refuseUnlessGone(w, req, err)
				return
			}
		}
		callOf(req.Context()).forwarding = f
		next.ServeHTTP(w, req)
	})
}

// handleOrForward returns a handler that has the Forwarder call next, or forward the request.
func handleOrForward(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := early(req.Context())
		defer cancel()
		body := bodyOf(req)
		r := &Received{Request: req, Body: body.all, BodyTime: body.took, next: next}
		if err := callOf(req.Context()).forwarding.Handle(ctx, w, r); err != nil {
			refuseUnlessGone(w, req, err)
		}
	}
}

func refuseUnlessGone(w http.ResponseWriter, req *http.Request, err error) {
	if !errors.Is(err, context.Canceled) {
		refuse(w, req, err)
	}
}
