package intake

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxHeaderBytes limits the URI and the headers of a request. The server of
	// k8s.io/apiserver reads 1 MiB of them, from anybody: as much as a body, and
	// before it is known who sends it.
	maxHeaderBytes = 64 << 10
	// maxAssertedBytes limits the user that another replica asserts, who may be in
	// hundreds of groups. It is not more, because anybody can have a server read as much.
	maxAssertedBytes = 48 << 10
	// MaxHeaderBytes is what the server in front of a handler has to read of headers
	// over HTTP/1.1, and MaxHeaderBytesHTTP2 over HTTP/2, which replicas speak.
	MaxHeaderBytes      = maxHeaderBytes
	MaxHeaderBytesHTTP2 = maxHeaderBytes + maxPeerBytes + maxAssertedBytes
	// maxAcceptBytes limits what the handlers parse for each of the answers that they
	// could give.
	maxAcceptBytes = 4 << 10
	// maxPeerBytes is what another replica may add to the headers of a client, beside
	// that user: its token, the audit ID and the time-out.
	maxPeerBytes = 16 << 10
	// headerFieldBytes is what a field takes beside its name and its value.
	headerFieldBytes = 64
)

// headerBytes is the memory that the URI and the headers of a request take. The part
// of it that asserts a user for another replica is counted apart.
func headerBytes(req *http.Request) (own, asserted int) {
	own = len(req.RequestURI) + len(req.Host)
	for name, values := range req.Header {
		size := headerFieldBytes + len(name) + bytesOf(values)
		if name == assertedUser {
			asserted = size
		} else {
			own += size
		}
	}
	return own, asserted
}

func bytesOf(values []string) (n int) {
	for _, value := range values {
		n += headerFieldBytes + len(value)
	}
	return n
}

// withHeaderLimit answers 431 to a request with larger headers than are needed, and
// closes its connection, unless another replica has passed the request on: its
// connections are those of all its clients. That request takes memory only until its
// answer is written, for which unwritten counts it.
func withHeaderLimit(next http.Handler, m *metrics) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		own, asserted := headerBytes(req)
		most := maxHeaderBytes
		if PassedOn(req) {
			most += maxPeerBytes
		}
		if own <= most && asserted <= maxAssertedBytes && bytesOf(req.Header["Accept"]) <= maxAcceptBytes {
			next.ServeHTTP(w, req)
			return
		}
		m.refused.WithLabelValues(refusedHeaders).Inc()
		if !PassedOn(req) {
			w.Header().Set("Connection", "close")
		}
		refuse(w, inJSON(req), apierrors.NewGenericServerResponse(http.StatusRequestHeaderFieldsTooLarge, "",
			schema.GroupResource{}, "", "the headers or the URL of the request are too large", 0, true))
	})
}

// inJSON returns a request that is answered in JSON, whatever it accepts.
func inJSON(req *http.Request) *http.Request {
	return &http.Request{Method: req.Method, URL: req.URL, Header: http.Header{}}
}
