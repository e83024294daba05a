package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eventd/eventd/test/await"
)

// destination is a receiver of OTLP over HTTP, which can be away. Its address stays the same.
type destination struct {
	name     string
	address  string
	behave   behaviour
	arrivals *arrivals
	requests atomic.Int64

	mu     sync.Mutex
	server *http.Server // nil while it is away
}

// startDestination starts one on a free port. The caller closes it.
func startDestination(ctx context.Context, name string, behave behaviour) (*destination, error) {
	d := &destination{name: name, address: "127.0.0.1:0", behave: behave, arrivals: newArrivals()}
	return d, d.open(ctx)
}

func (d *destination) url() string { return "http://" + d.address }

// open begins to accept connections.
func (d *destination) open(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", d.address)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.address = listener.Addr().String()
	d.server = &http.Server{Handler: d}
	go func(s *http.Server) { _ = s.Serve(listener) }(d.server) // until close
	return nil
}

// close ends all connections, and refuses new ones.
func (d *destination) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		_ = d.server.Close()
		d.server = nil
	}
}

// ServeHTTP implements http.Handler.
func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := readRequest(r)
	came := time.Now()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	versions := versionsOf(request)
	a := d.behave(int(d.requests.Add(1)-1), len(versions))
	if await.Sleep(r.Context(), a.delay) != nil {
		return
	}
	d.arrivals.add(versions[:a.accepted], came.Add(a.delay))
	a.write(w)
}

// waitDelivered waits until everything that is stored has come, or nothing has come for quiet.
func (d *destination) waitDelivered(ctx context.Context, s *stored, quiet time.Duration) error {
	began := time.Now()
	return await.Success(ctx, time.Hour, func() error {
		n, latest := d.arrivals.progress()
		if n < s.count() && time.Since(began) < quiet || n < s.count() && time.Since(latest) < quiet {
			return fmt.Errorf("%s has %d of %d versions", d.name, n, s.count())
		}
		return nil
	})
}

// waitProbe has probes written until one has come that was written after this call.
func (d *destination) waitProbe(ctx context.Context, a *author) error {
	from := a.probes + 1
	return await.Success(ctx, time.Minute, func() error {
		if err := a.probe(ctx); err != nil {
			return await.Permanent(err)
		}
		if err := await.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if !d.arrivals.hasProbe(from) {
			return errors.New("no probe has come to " + d.name)
		}
		return nil
	})
}
