// Package page serves a page on this machine that shows what eventd does. It gets everything from
// query.eventd.io/v1alpha1 with the credentials of its caller, and renders it: no request of a browser is
// passed on. Only a browser that was opened at the address that Serve prints, which works once, gets answers.
// Serve owns all goroutines and ends with its context.
package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backend is a client of query.eventd.io/v1alpha1, with the credentials of its caller. It is safe for
// concurrent use. Its errors are those of k8s.io/apimachinery/pkg/api/errors if eventd has answered.
type Backend interface {
	// Get decodes the answer of a resource, such as status, into an object of v1alpha1.
	Get(ctx context.Context, resource string, query url.Values, into any) error
	// Watch opens the watch of a resource. It ends with ctx.
	Watch(ctx context.Context, resource string, query url.Values) (Stream, error)
}

// Stream has the frames of a watch.
type Stream = interface {
	// Next waits for the next frame. It returns io.EOF when the watch has ended, and an error soon after
	// the context of the watch has.
	Next() (metav1.WatchEvent, error)
	// Close may be called at any time, also while Next waits.
	Close() error
}

// Options are the settings of Serve.
type Options struct {
	// Backend is required.
	Backend Backend
	// Kind returns the API group and the kind that somebody means by a resource, a short name or a kind, as kubectl does: Pod by po.
	// It returns "" if it knows none. It must be safe for concurrent use, and return in bounded time. Without it,
	// a kind is as it was typed, with a capital letter.
	Kind func(typed string) (group, kind string)
	// Advice says what to do about an error of the backend, or "". It may be nil.
	Advice func(err error) string
	// Address is where to listen, on a loopback address. The default is a free port of 127.0.0.1.
	Address string
	// Out gets a line with the address to open, unless it is nil.
	Out io.Writer
	// Open is called with that address, unless it is nil. It must not wait for the browser.
	Open func(address string)
}

// shutdownTimeout is how long requests in flight may take after the context has ended.
const shutdownTimeout = 2 * time.Second

// Serve serves the page until ctx ends.
func Serve(ctx context.Context, o Options) error {
	if o.Backend == nil {
		return errors.New("a page needs a backend")
	}
	listener, err := listen(ctx, o.Address)
	if err != nil {
		return err
	}
	// Requests end with ctx, streams included.
	requests, cancel := context.WithCancelCause(ctx)
	s := newServer(o.Backend, listener.Addr().String())
	s.kind, s.advice = o.Kind, o.Advice
	server := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	address := "http://" + s.host + entrance + s.session.token
	if o.Out != nil {
		fmt.Fprintf(o.Out, "Open %s\nThis address works once, in one browser. Ctrl-C ends the page.\n", address)
	}
	if o.Open != nil {
		o.Open(address)
	}
	select {
	case err := <-ended:
		cancel(err)
		return err
	case <-ctx.Done():
	}
	cancel(context.Cause(ctx))
	shutdown, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer done()
	if server.Shutdown(shutdown) != nil {
		server.Close() // what a browser does not read
	}
	<-ended
	return nil
}

// listen listens on a loopback address only: who can connect is on this machine.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address of the page: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("address of the page: %q is not a loopback address, such as 127.0.0.1", host)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}
