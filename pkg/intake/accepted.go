package intake

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// acceptance makes 202 of a success, if the storage asks for it. The apiserver's
// handlers write their answer with a code of their own, 200 or 201.
type acceptance struct {
	http.ResponseWriter
	// accepted is set by the storage, which the handlers run on a goroutine of
	// its own and may give up on.
	accepted atomic.Bool
	begun    bool
}

type acceptanceKey struct{}

// withAcceptance lets the storage behind a handler call accept.
func withAcceptance(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		a := &acceptance{ResponseWriter: w}
		ctx := context.WithValue(req.Context(), acceptanceKey{}, a)
		handler(responsewriter.WrapForHTTP1Or2(a), req.WithContext(ctx))
	}
}

// accept has a request answered 202, if it succeeds.
func accept(ctx context.Context) {
	if a, ok := ctx.Value(acceptanceKey{}).(*acceptance); ok {
		a.accepted.Store(true)
	}
}

func (a *acceptance) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *acceptance) WriteHeader(code int) {
	a.begun = true
	if a.accepted.Load() && (code == http.StatusOK || code == http.StatusCreated) {
		code = http.StatusAccepted
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *acceptance) Write(b []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(b)
}
