package page

import (
	"net/http"
	"time"
)

// NewHandler is what Serve serves, but for the time that a browser may leave a stream unread.
func NewHandler(b Backend, address string, patience time.Duration) (h http.Handler, path string) {
	s := newServer(b, address)
	s.patience = patience
	return s.handler(), entrance + s.session.token
}
