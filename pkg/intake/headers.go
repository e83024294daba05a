package intake

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of a request's headers and URL, in bytes. net/http reads up to 1 MiB of
// them, and a request keeps them for as long as it is in flight. The first has room
// for a caller with a thousand groups, asserted by another replica. The handlers parse
// all of the second for each of the answers that they could give.
const (
	maxHeaderBytes = 64 << 10
	maxAcceptBytes = 4 << 10
)

// withHeaderLimit answers 431 to requests with more than that.
func withHeaderLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if headerBytes(req) > maxHeaderBytes || bytesOf(req.Header["Accept"]) > maxAcceptBytes {
			refuse(w, tolerant(req), apierrors.NewGenericServerResponse(http.StatusRequestHeaderFieldsTooLarge, "",
				schema.GroupResource{}, "", "the headers or the URL of the request are too large", 0, true))
			return
		}
		next.ServeHTTP(w, req)
	})
}

// tolerant returns a request that is answered in JSON.
func tolerant(req *http.Request) *http.Request {
	return &http.Request{Method: req.Method, URL: req.URL, Header: http.Header{}}
}

func headerBytes(req *http.Request) int {
	n := len(req.RequestURI) + len(req.Host)
	for name, values := range req.Header {
		n += len(name) + bytesOf(values)
	}
	return n
}

func bytesOf(values []string) (n int) {
	for _, value := range values {
		n += len(value) + 1
	}
	return n
}
