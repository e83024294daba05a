package intake

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/eventd/eventd/internal/shares"
)

// call is the state of one request between the filters and handlers of this package.
// It is in the context of the request, because filters and handlers of k8s.io/apiserver
// are called in between. unreadResponses.buffered makes it.
//
// The handlers of k8s.io/apiserver run the storage on a goroutine of its own, and may return before it ends. So
// a field is either set before the goroutine that reads it starts, or it is atomic.
type call struct {
	// response buffers the response. Set by unreadResponses.serve; metrics.observe
	// reads its status code when the handler has returned.
	response bufferedResponse
	// body is that of the request. Set by unreadResponses.serve, and read after the response.
	body trackedBody
	// arrival is that among the requests in flight. Used by metrics.observe.
	arrival arrival
	// credential is that of the caller. Set by flowControl.withCredentials; read by
	// flowControl.withInFlightLimit and callers.limit.
	credential credential
	// token is the bearer token of another replica. Set by flowControl.withCredentials; read
	// by sessions.begin, since the authentication removes the header.
	token string
	// verified is the user that an unknown certificate verifies as, "" if it does not. Set by
	// flowControl.withCredentials; read by callers.holder.
	verified string
	// forwarding is how the Forwarder handles the request, nil without one. Set by
	// awaitLeader; read by forwarded.
	forwarding Forwarding
	// inFlight is what the request counts as. Set by flowControl.withInFlightLimit, moved
	// by flowControl.withCallerFlow and flowControl.decided, and read by flowControl.withSeat.
	inFlight inFlight
	// presented is the request of a watch as it was before its authentication, which removes credentials; nil
	// for others. Set by flowControl.withInFlightLimit; read by queries.serve.
	presented *http.Request
	// authnErr is the error of the authenticator. Set by keepError; read by the handler
	// of requests that are not authenticated.
	authnErr error
	// decoding is the cost of decoding the body. Set by decodeBudget.withBodyCheck and
	// Intake.withBatchCheck; read by flowControl.withSeat, Received, withReservation and the storage.
	decoding decoding
	// term is that in which the request is handled, zero without a Forwarder. Set by
	// handleInTerm; read by the storage. If the term ends, the request may be handled in
	// another one, after the storage has set termEnded and reads nothing more.
	term Term
	// seat is what the request has while it is handled, nil before. Set by
	// flowControl.withSeat; the storage and the authorizer release and acquire it.
	seat *seat

	// user is the authenticated one, once authenticated is true. Set by flowControl.withCallerFlow;
	// read by flow, maybe while the handler still runs.
	user          string
	authenticated atomic.Bool
	// standing is what is known of the caller's rights. Set by flowControl.knownFlow and flowControl.decided; read by
	// flowOf.
	standing atomic.Int32
	// granted: a right of the caller was recorded recently. Set by flowControl.knownFlow; read by flowControl.decided.
	granted bool
	// accepted makes a success 202 Accepted. Set by the storage; read by handlerResponse.
	accepted atomic.Bool
	// session runs in place of a response. Set by sessions.begin and queries.serve;
	// read by unreadResponses.serve.
	session atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	// query: the response is the answer to a query, which is written within a limit of its own. Set by
	// queries.serve; read by unreadResponses.serve.
	query atomic.Bool
	// termEnded withholds the response, because nothing was recorded in this term. Set by
	// the storage; read by handlerResponse.
	termEnded atomic.Bool
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

// unanswered reports whether the handler that has returned has neither responded nor begun a session.
func (c *call) unanswered() bool { return c.response.code == 0 && c.session.Load() == nil }

// charged is flow for the response, where unproven callers are among the rightless.
func (c *call) charged(req *http.Request) flow {
	f := c.flow(req)
	if c.authenticated.Load() && c.standing.Load() == unproven {
		return f.Of(shares.Rightless)
	}
	return f
}

// flow returns the flow of a request: that of the caller in all its
// namespaces or, if it is not authenticated, of its address.
func (c *call) flow(req *http.Request) flow {
	if c.authenticated.Load() {
		return c.flowOf(c.user, "")
	}
	return flowOfAddress(req)
}

// flowOf returns the flow of a user in a namespace: its own once a right of it is known. So those that are refused before
// they are authorized have no more by being many.
func (c *call) flowOf(user, namespace string) flow {
	f := shares.FlowOf(user, namespace)
	switch c.standing.Load() {
	case unproven:
		return f.Of(shares.Unproven)
	case rightless:
		return f.Of(shares.Rightless)
	}
	return f
}

// What is known of the rights of a caller.
const (
	unproven  int32 = iota // nothing
	rightless              // it has none
	entitled               // it has one
)
