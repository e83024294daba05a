package faultproxy

import (
	"context"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// Proxy is a reverse proxy with faults. See the package's documentation.
type Proxy struct {
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	config  *rest.Config // the backend's
	backend *backend
	front   *front
	rules   atomic.Pointer[[]Rule]
	dice    *dice
	limiter limiter
	journal journal
}

// New starts a proxy in front of a backend, without any faults yet, and closes it
// when the test ends. A test that fails logs the seed and the table of what
// happened.
func New(t testing.TB, backend *rest.Config, seed uint64) *Proxy {
	t.Helper()
	p, err := Start(backend, seed)
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	t.Cleanup(func() {
		p.Close()
		if t.Failed() {
			t.Logf("faultproxy: seed %d; what happened to Event writes:\n%s", seed, p.Record().Table())
		}
	})
	return p
}

// Start is New for programs that are not tests. The caller closes the proxy.
func Start(backend *rest.Config, seed uint64) (*Proxy, error) {
	p := &Proxy{config: rest.CopyConfig(backend), dice: newDice(seed)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.SetRules()
	var err error
	if p.backend, err = newBackend(p.config); err != nil {
		return nil, err
	}
	if p.front, err = newFront(p.serve); err != nil {
		return nil, err
	}
	return p, nil
}

// Config returns a copy of the backend's configuration for the address of the proxy. It
// has no client certificate, since the proxy uses that itself.
func (p *Proxy) Config() *rest.Config {
	c := rest.CopyConfig(p.config)
	c.Host = "https://" + p.front.address.String()
	c.TLSClientConfig = rest.TLSClientConfig{CAData: p.front.ca}
	c.Dial, c.Proxy = nil, nil
	return c
}

// Close resets all connections, cancels the requests to the backend and the late
// writes that still wait, and waits for all of that. It may be called again. The
// Record stays.
func (p *Proxy) Close() {
	p.cancel()
	p.front.close()
	p.backend.close()
}
