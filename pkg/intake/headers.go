package intake

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxHeaderBytes limits the URI and the headers of a request. The server of
	// k8s.io/apiserver reads 1 MiB of them before authentication, as much as a body. A usual request has 2 KiB.
	maxHeaderBytes = 12 << 10
	// maxAssertedBytes limits the user that another replica asserts, who may be in
	// more than 100 groups. The server reads as many bytes from any client.
	maxAssertedBytes = 6 << 10
	// MaxHeaderBytes is the header limit for the server in front of a handler with
	// HTTP/1.1, which reads 4 KiB more, and MaxHeaderBytesHTTP2 with HTTP/2, which replicas use:
	// what they forward rarely has the maximum of all three.
	MaxHeaderBytes      = maxHeaderBytes - 3<<10
	MaxHeaderBytesHTTP2 = maxHeaderBytes + maxPeerBytes/2 + maxAssertedBytes
	// maxAcceptBytes limits the Accept header. The handlers parse it once for each media
	// type that they support.
	maxAcceptBytes = 4 << 10
	// maxPeerBytes is what another replica may add to the headers of a client beside
	// that user: its token, the audit ID and the timeout.
	maxPeerBytes = 4 << 10
	// headerFieldBytes is the memory of a field beside its name and its values, and headerValueBytes that of a value.
	headerFieldBytes, headerValueBytes = 64, 16
)

// headerBytes is the memory of the URI and the headers of a request. asserted is the
// part of them that asserts a user.
func headerBytes(req *http.Request) (own, asserted int) {
	own = len(req.RequestURI) + len(req.Host)
	for name, values := range req.Header {
		size := headerFieldBytes + len(name) + bytesOf(values)
		if name == AssertedUserHeader {
			asserted = size
		} else {
			own += size
		}
	}
	return own, asserted
}

func bytesOf(values []string) (n int) {
	for _, value := range values {
		n += headerValueBytes + len(value)
	}
	return n
}

// withHeaderLimit responds 431 to a request with larger headers than are needed, and
// closes its connection. It does not close the connection of another replica, which is
// shared by all its clients. unreadResponses counts the headers of that request until
// its response is written.
func (m *metrics) withHeaderLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		own, asserted := headerBytes(req)
		most := maxHeaderBytes
		if Forwarded(req) {
			most += maxPeerBytes
		}
		if own <= most && asserted <= maxAssertedBytes && bytesOf(req.Header["Accept"]) <= maxAcceptBytes {
			next.ServeHTTP(w, req)
			return
		}
		m.refused.WithLabelValues(refusedHeaders).Inc()
		if !Forwarded(req) {
			w.Header().Set("Connection", "close")
		}
		refuse(w, inJSON(req), apierrors.NewGenericServerResponse(http.StatusRequestHeaderFieldsTooLarge, "",
			schema.GroupResource{}, "", "the headers or the URL of the request are too large", 0, true))
	})
}

// inJSON returns a request without Accept, so that the response is in JSON.
func inJSON(req *http.Request) *http.Request {
	return &http.Request{Method: req.Method, URL: req.URL, Header: http.Header{}}
}
