package app

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/eventd/eventd/internal/responsestart"
	"github.com/eventd/eventd/pkg/intake"
)

// withConnectionDraining drains connections during a shutdown: the client opens another one
// for its next request. A Service keeps established connections, and a client that
// still uses one when the listener closes may find it reset. HTTP/1.1 closes the
// connection after the answer. HTTP/2 sends GOAWAY and closes the connection after
// the last answer in flight. It must wrap all handlers that set connection headers.
//
// Connections of other replicas are not drained: replicas follow the Lease. If a
// leader closed each connection after its first answer during a handover, their
// HTTP/2 client would wait a second before it sends a request for the third time.
func withConnectionDraining(next http.Handler, shutdown <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if intake.Forwarded(req) {
			next.ServeHTTP(w, req)
			return
		}
		draining := &responsestart.Writer{ResponseWriter: w, Begin: func(int) {
			select {
			case <-shutdown:
				w.Header().Set("Connection", "close")
			default:
			}
		}}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(draining), req)
	})
}
