package intake

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxBodyBuffer limits the memory of a body that has not arrived.
const maxBodyBuffer = 16 << 10

// readBody reads a whole body. One above the limit is answered as by the apiserver's handlers. A read ignores the
// context of its request, so a read deadline in the past ends it after abandonAfter: a goroutine of its own would cost
// each request two wake-ups of a processor.
func readBody(req *http.Request, limit int64) ([]byte, error) {
	if req.Body == nil || req.ContentLength == 0 {
		return nil, nil
	}
	arrived, _ := request.ReceivedTimestampFrom(req.Context())
	var abandoning sync.WaitGroup
	abandoning.Add(1)
	late := time.AfterFunc(time.Until(arrived.Add(abandonAfter)), func() {
		defer abandoning.Done()
		_ = http.NewResponseController(callOf(req.Context()).response.w).SetReadDeadline(time.Unix(1, 0)) // the past
	})
	var body bytes.Buffer
	body.Grow(int(min(max(req.ContentLength, 0), limit, maxBodyBuffer)) + bytes.MinRead)
	_, err := body.ReadFrom(io.LimitReader(req.Body, limit+1))
	if !late.Stop() {
		abandoning.Wait() // the response writer must not be used after its request
	}
	switch {
	case err != nil:
		return nil, err
	case int64(body.Len()) > limit:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return body.Bytes(), nil
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
