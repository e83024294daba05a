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

// Term is the time in which this process leads without interruption.
type Term struct {
	// Number is that of the term in this process, from 1.
	Number int64
	// Leading reports whether the term lasts. It must not block.
	Leading func() bool
}

// errTermEnded is why an occurrence of an admitted request was not recorded.
var errTermEnded = errors.New("this replica no longer leads")

// termWriter is the response of a request that is handled in a term. Between its
// admission and its record it waits for its name, or the process is stopped. So the
// storage checks the term again right before the record. If it has ended, the response
// is withheld, and the request can be handled elsewhere.
type termWriter struct {
	http.ResponseWriter
	term Term
	// missed is set by the storage, on a goroutine that the handlers may leave behind.
	missed          atomic.Bool
	begun, withheld bool
}

type termKey struct{}

// handleInTerm reports whether the response was written.
func handleInTerm(w http.ResponseWriter, req *http.Request, term Term, next http.HandlerFunc) bool {
	t := &termWriter{ResponseWriter: w, term: term}
	before := w.Header().Clone()
	next(responsewriter.WrapForHTTP1Or2(t), req.WithContext(context.WithValue(req.Context(), termKey{}, t)))
	if t.withheld {
		clear(w.Header())
		maps.Copy(w.Header(), before)
	}
	return !t.withheld
}

// mayRecord reports whether an admitted request still may have an effect.
func mayRecord(ctx context.Context) bool {
	t, ok := ctx.Value(termKey{}).(*termWriter)
	return !ok || t.term.Leading()
}

// termOf is the number of the term in which a request was admitted, 0 without a
// Forwarder.
func termOf(ctx context.Context) int64 {
	if t, ok := ctx.Value(termKey{}).(*termWriter); ok {
		return t.term.Number
	}
	return 0
}

// withhold withholds the response of a request whose report, or the one that it joined,
// was not recorded because the term had ended.
func withhold(ctx context.Context, s occurrence.Settlement) {
	if t, ok := ctx.Value(termKey{}).(*termWriter); ok && errors.Is(s.Err, errTermEnded) {
		t.missed.Store(true)
	}
}

func (t *termWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *termWriter) WriteHeader(code int) {
	if !t.begun {
		t.begun, t.withheld = true, t.missed.Load()
	}
	if !t.withheld {
		t.ResponseWriter.WriteHeader(code)
	}
}

func (t *termWriter) Write(b []byte) (int, error) {
	if !t.begun {
		t.WriteHeader(http.StatusOK)
	}
	if t.withheld {
		return len(b), nil
	}
	return t.ResponseWriter.Write(b)
}
