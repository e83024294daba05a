package intake

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// acceptedWriter makes 202 of a success, if the storage has set call.accepted. The
// apiserver's handlers write a status code of their own, 200 or 201.
type acceptedWriter struct {
	http.ResponseWriter
	call *call
}

func withAccepted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		next(responsewriter.WrapForHTTP1Or2(&acceptedWriter{w, callOf(req.Context())}), req)
	}
}

func (a *acceptedWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *acceptedWriter) WriteHeader(code int) {
	if a.call.accepted.Load() && (code == http.StatusOK || code == http.StatusCreated) {
		code = http.StatusAccepted
	}
	a.ResponseWriter.WriteHeader(code)
}
