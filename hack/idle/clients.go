package main

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// connect makes a request over each of n new connections, which stay open, and returns
// by how much the resident memory has grown per connection.
func (e *eventd) connect(ctx context.Context, n int) (bytes float64, err error) {
	before, err := e.usage(ctx)
	if err != nil {
		return 0, err
	}
	for range n {
		end, err := request(ctx, e.admin)
		if err != nil {
			return 0, err
		}
		defer end()
	}
	if err := await.Sleep(ctx, *settle); err != nil {
		return 0, err
	}
	after, err := e.usage(ctx)
	return (after.resident - before.resident) / float64(n), err
}

// request makes a request over a new HTTP/2 connection, which end closes.
func request(ctx context.Context, config *rest.Config) (end func(), err error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/livez", nil)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return transport.CloseIdleConnections, err
}
