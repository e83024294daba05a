package intake

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// readBody reads a whole body. One above the limit is answered as by the apiserver's
// handlers.
func readBody(req *http.Request, limit int64) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	if received, ok := req.Body.(receivedBody); ok && int64(len(received.all)) <= limit {
		return received.all, nil // another replica has read it
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body, nil
}

// withBody returns a request whose body is read from memory.
func withBody(req *http.Request, body []byte, took time.Duration) *http.Request {
	req = req.WithContext(req.Context())
	req.Body = receivedBody{bytes.NewReader(body), body, took}
	return req
}

// receivedBody is one that was read, and can be had without reading it.
type receivedBody struct {
	*bytes.Reader
	all  []byte
	took time.Duration // to arrive
}

// Close implements io.Closer.
func (receivedBody) Close() error { return nil }

// bodyOf returns the body of a request that comes from withBody.
func bodyOf(req *http.Request) receivedBody {
	body, _ := req.Body.(receivedBody)
	return body
}
