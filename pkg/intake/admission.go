package intake

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/eventd/eventd/pkg/occurrence"
)

// errTurnedAway is why an occurrence was not recorded which the gate had let in.
var errTurnedAway = errors.New("this replica leads no more")

// admission is a request that the gate has let in. Between that and its being
// recorded time goes by: it waits for its turn at its name, or the whole process
// was stopped. So whether this process leads is asked again right before it is
// recorded, and if not, what its handler answers is held back: it is brought to
// the leader as if the gate had not let it in.
type admission struct {
	http.ResponseWriter
	leading func() bool
	term    int64 // of the gate
	// turnedAway is set by the storage, which the handlers run on a goroutine of
	// its own and may give up on.
	turnedAway      atomic.Bool
	begun, heldBack bool
}

type admissionKey struct{}

// admit has a request handled that the gate has let in, and tells whether it was
// answered.
func admit(w http.ResponseWriter, req *http.Request, leading func() bool, term int64, next http.HandlerFunc) bool {
	a := &admission{ResponseWriter: w, leading: leading, term: term}
	before := w.Header().Clone()
	next(responsewriter.WrapForHTTP1Or2(a), req.WithContext(context.WithValue(req.Context(), admissionKey{}, a)))
	if a.heldBack {
		clear(w.Header())
		maps.Copy(w.Header(), before)
	}
	return !a.heldBack
}

// mayRecord tells whether a request that was let in still may have an effect.
func mayRecord(ctx context.Context) bool {
	a, ok := ctx.Value(admissionKey{}).(*admission)
	return !ok || a.leading()
}

// termOf is the term that a request was let in in, 0 if there is no gate.
func termOf(ctx context.Context) int64 {
	if a, ok := ctx.Value(admissionKey{}).(*admission); ok {
		return a.term
	}
	return 0
}

// turnAway has a request brought to the leader that waited for a report which was
// not recorded, its own or one that it had joined.
func turnAway(ctx context.Context, s occurrence.Settlement) {
	if a, ok := ctx.Value(admissionKey{}).(*admission); ok && errors.Is(s.Err, errTurnedAway) {
		a.turnedAway.Store(true)
	}
}

func (a *admission) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *admission) WriteHeader(code int) {
	if !a.begun {
		a.begun, a.heldBack = true, a.turnedAway.Load()
	}
	if !a.heldBack {
		a.ResponseWriter.WriteHeader(code)
	}
}

func (a *admission) Write(b []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.heldBack {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}
