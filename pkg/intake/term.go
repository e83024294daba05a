package intake

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Term is the time in which this process leads without interruption.
type Term struct {
	// Number is that of the term in this process, from 1.
	Number int64
	// Leading reports whether the term lasts. It must not block.
	Leading func() bool
}

// lasts reports whether a request may have an effect. The zero term always lasts.
func (t Term) lasts() bool { return t.Leading == nil || t.Leading() }

// errTermEnded is why an occurrence of an admitted request was not recorded.
var errTermEnded = errors.New("this replica no longer leads")

// handleInTerm reports whether the response was written. Before its record, a request
// waits for its name, or the process is stopped. So the storage checks the term again
// right before the record. If it has ended, the response is withheld, and the request
// can be handled elsewhere.
func handleInTerm(w http.ResponseWriter, req *http.Request, term Term, next http.HandlerFunc) bool {
	call := callOf(req.Context())
	call.term = term
	call.termEnded.Store(false)
	before := make([]headerField, 0, 8) // room for all, without an allocation
	for name, values := range w.Header() {
		before = append(before, headerField{name, values})
	}
	response := &handlerResponse{ResponseWriter: w, call: call}
	next(responsewriter.WrapForHTTP1Or2(response), req)
	if response.withheld {
		header := w.Header()
		clear(header)
		for _, field := range before {
			header[field.name] = field.values
		}
	}
	return !response.withheld
}

// headerField is a field of a header. Handlers replace its values, or append to them.
type headerField struct {
	name   string
	values []string
}

// withoutTerm handles requests in a process without a Forwarder.
func withoutTerm(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) { _ = handleInTerm(w, req, Term{}, next) }
}

// handlerResponse is the response of the apiserver's handlers, changed as the storage
// requires: a deferred write is 202, where the handlers write 200 or 201, and the
// response is withheld if the term has ended.
type handlerResponse struct {
	http.ResponseWriter
	call            *call
	begun, withheld bool
}

func (r *handlerResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *handlerResponse) WriteHeader(code int) {
	if !r.begun {
		r.begun, r.withheld = true, r.call.termEnded.Load()
	}
	if r.withheld {
		return
	}
	if r.call.accepted.Load() && (code == http.StatusOK || code == http.StatusCreated) {
		code = http.StatusAccepted
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *handlerResponse) Write(b []byte) (int, error) {
	if !r.begun {
		r.WriteHeader(http.StatusOK)
	}
	if r.withheld {
		return len(b), nil
	}
	return r.ResponseWriter.Write(b)
}
