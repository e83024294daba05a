package intake

import (
	"context"
	"net/http"
	"sync/atomic"
)

// call is the state of one request between the filters and handlers of this package.
// It is in the context of the request, because filters and handlers of k8s.io/apiserver
// are called in between. unwritten.around makes it.
//
// The handlers of k8s.io/apiserver run the storage on a goroutine of its own, and their
// timeout filter runs the handlers on another one. Both may return before it ends. So
// a field is either set before the goroutine that reads it starts, or it is atomic.
type call struct {
	// response is what was answered. Set by unwritten.around; metrics.observe reads its
	// status code when the handler has returned.
	response *bufferedAnswer
	// credential is what the caller presents. Set by flowControl.withCredentials; read
	// by flowControl.withPlace and the authenticator.
	credential credential
	// verified is the tenant that unknown credentials verify as, "" if they do not. Set by
	// flowControl.withCredentials; read by callers.tenant.
	verified string
	// place is what the request counts as among those in flight. Set by
	// flowControl.withPlace, moved by flowControl.withFlow, and read by flowControl.seated.
	place *place
	// authnErr is the error of the authenticator. Set by keepError; read by the handler
	// of requests that are not authenticated.
	authnErr error
	// decoding is the cost of decoding the body. Set by decodeBudget.checked; read by
	// flowControl.seated, Relay, reserved and the storage.
	decoding *decoding
	// seat is what the request has while it is handled, nil before. Set by
	// flowControl.seated; the storage and the authorizer release and acquire it.
	seat *seat

	// tenant is that of the authenticated user, nil before. Set by flowControl.withFlow;
	// read by unwritten.around, maybe while the handler still runs.
	tenant atomic.Pointer[string]
	// accepted makes a success 202 Accepted. Set by the storage; read by acceptedWriter.
	accepted atomic.Bool
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the state of a request, or a new one if the context has none.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return new(call)
}

// flow returns whose response the one to a request is: of the caller in all its
// namespaces or, before it is authenticated, of its address.
func (c *call) flow(req *http.Request) flow {
	if tenant := c.tenant.Load(); tenant != nil {
		return flow{Tenant: *tenant}
	}
	return flowOfAddress(req)
}
