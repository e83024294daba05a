package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/intake"
)

const (
	// queryTimeout is for the leader's answer to begin: it may review the caller first.
	queryTimeout = 10 * time.Second
	// queryConnections have a stream for each query and watch that a replica serves at once (pkg/intake).
	queryConnections = 2
)

// Query has the leader answer a GET, in the name of its authenticated caller, until ctx ends. It does not
// wait for a leader, and tries once. The caller must close the body of the response, which may be a watch.
// Queries have connections of their own, so they take no place of a request that is forwarded.
func (r *Relay) Query(ctx context.Context, req *http.Request) (*http.Response, error) {
	leader := r.acquireForQuery()
	if leader == nil {
		return nil, errNoLeader
	}
	ctx, cancel := context.WithCancelCause(ctx)
	end := sync.OnceFunc(func() {
		cancel(nil)
		leader.release()
	})
	response, err := r.query(ctx, cancel, leader, req)
	if err != nil {
		end()
		if why, ok := errors.AsType[*failure](err); ok {
			err = why // the rest has addresses and files, which are not the caller's business
		}
		return nil, err
	}
	response.Body = &endingBody{response.Body, end}
	return response, nil
}

func (r *Relay) query(ctx context.Context, cancel context.CancelCauseFunc, leader *connections, req *http.Request) (*http.Response, error) {
	token, err := r.token.get()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoToken, err)
	}
	out, err := newOutgoing(&intake.Received{Request: req})
	if err != nil {
		return nil, err
	}
	sent, err := out.request(ctx, leader.server.Address, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	timer := time.AfterFunc(queryTimeout, func() { cancel(errSilent) })
	defer timer.Stop()
	giveUp := time.Now().Add(queryTimeout)
	response, err := leader.transport.RoundTrip(sent)
	for errors.Is(err, errFull) && leader.awaitSlot(ctx, giveUp) {
		response, err = leader.transport.RoundTrip(sent)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotConnected, errors.Join(err, context.Cause(ctx)))
	case response.StatusCode == http.StatusUnauthorized: // this replica is, not the caller
		_ = response.Body.Close()
		return nil, errNotKnown
	}
	return response, nil
}

// acquireForQuery returns the connections for queries, nil if there is no leader to forward to. The caller
// calls release.
func (r *Relay) acquireForQuery() *connections {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == nil {
		return nil
	}
	if r.queries == nil || !r.queries.acquire() {
		r.dropQueries()
		r.queries = newConnections(r.leader.server, queryConnections, &health{})
		r.queries.acquire()
	}
	return r.queries
}

func (r *Relay) dropQueries() {
	if r.queries != nil {
		r.queries.retire()
		r.queries = nil
	}
}

// endingBody is a body whose Close ends its request.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
