package main

import (
	"context"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// connect has so many clients ask once, each over a connection of its own, which
// stays, and returns by how much that made the replica larger for each.
func (r *replica) connect(ctx context.Context, n int) (bytes float64, err error) {
	before, err := r.usage(ctx)
	if err != nil {
		return 0, err
	}
	for range n {
		end, err := ask(ctx, r.config)
		if err != nil {
			return 0, err
		}
		defer end()
	}
	if err := wait(ctx, *settle); err != nil {
		return 0, err
	}
	after, err := r.usage(ctx)
	return (after.resident - before.resident) / float64(n), err
}

// ask makes a request over a connection of its own, over HTTP/2, and returns what
// ends that.
func ask(ctx context.Context, config *rest.Config) (end func(), err error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/livez", nil)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return transport.CloseIdleConnections, err
}
