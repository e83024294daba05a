package intake

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/responsestart"
	"github.com/eventd/eventd/internal/sleep"
)

// authenticationPeriod is between two authentications of the caller of an open watch.
const authenticationPeriod = reviewTTL

// watch returns a session that answers a watch within the limit of watches. It is behind all filters, so
// nothing of the request is in flight any more.
func (q *queries) watch(resource string, f flow, answer http.HandlerFunc) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, req *http.Request) {
		w = &responsestart.Writer{ResponseWriter: w, Begin: func(code int) { q.count(resource, code) }}
		if !q.watches.Acquire(f, 1) {
			q.control.refuse(w, inJSON(req), refusedShare)
			return
		}
		defer q.watches.Release(f, 1)
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				klog.FromContext(req.Context()).Error(nil, "A watch panicked", "panic", p, "stack", string(debug.Stack()))
				panic(http.ErrAbortHandler) // the response cannot be completed
			}
		}()
		answer(w, req)
	}
}

// asPresented returns the request of a watch as it is before its authentication, nil for others. The replica that
// has relayed a watch has its own.
func asPresented(req *http.Request) *http.Request {
	if Forwarded(req) || !req.URL.Query().Has("watch") {
		return nil
	}
	kept := req.Clone(context.Background())
	kept.Body = http.NoBody
	return kept
}

// whileAuthentic returns an answer to a watch that ends when the credentials of its caller are no longer
// accepted. An apiserver that does not answer ends none, nor do too many reviews.
func (q *queries) whileAuthentic(c *call, answer http.HandlerFunc) http.HandlerFunc {
	if c.presented == nil {
		return answer
	}
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, end := context.WithCancel(req.Context())
		var reviewing sync.WaitGroup
		defer reviewing.Wait()
		defer end()
		reviewing.Go(func() {
			for sleep.For(ctx, authenticationPeriod) == nil {
				if !q.authentic(ctx, c) {
					end()
				}
			}
		})
		answer(w, req.WithContext(ctx))
	}
}

// authentic authenticates a caller again. Reviews are cached, and fair between tenants, as those of requests.
func (q *queries) authentic(ctx context.Context, c *call) bool {
	again := c.presented.Clone(withCall(ctx, &call{credential: c.credential, verified: c.verified}))
	_, ok, err := q.authn.AuthenticateRequest(again)
	return ok || err != nil && (errors.Is(err, errReviews) || Undecided(err))
}
