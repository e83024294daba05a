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
	body, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body, nil
}

// receive returns a request whose body has been read.
func receive(req *http.Request, limit int64) (*http.Request, error) {
	if body, ok := req.Body.(*receivedBody); ok && int64(len(body.all)) <= limit {
		return req, nil // on the fast path, or another replica has read it
	}
	begun := time.Now()
	body, err := readBody(req, limit)
	if err != nil {
		return nil, err
	}
	return withBody(req, body, time.Since(begun)), nil
}

// withBody returns a request whose body is read from memory.
func withBody(req *http.Request, body []byte, took time.Duration) *http.Request {
	req = req.WithContext(req.Context())
	b := new(receivedBody)
	b.set(body, took)
	req.Body = b
	return req
}

// receivedBody is one that was read, and can be had without reading it.
type receivedBody struct {
	bytes.Reader
	all  []byte
	took time.Duration // to arrive
}

func (b *receivedBody) set(body []byte, took time.Duration) {
	b.Reset(body)
	b.all, b.took = body, took
}

// Close implements io.Closer.
func (*receivedBody) Close() error { return nil }

// noBody is that of a request without one that was received.
var noBody receivedBody

// bodyOf returns the body of a request that comes from withBody.
func bodyOf(req *http.Request) *receivedBody {
	if body, ok := req.Body.(*receivedBody); ok {
		return body
	}
	return &noBody
}
