package faultproxy

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// backendTimeout bounds a write that its client cannot cancel. It is above the limits
// of an apiserver and its webhooks.
const backendTimeout = time.Minute

// newBackend returns a reverse proxy for what is no Event write. Writes use its
// transport.
func newBackend(config *rest.Config) (*httputil.ReverseProxy, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	var c credentials
	if c.bare, err = newTransport(rest.AnonymousClientConfig(config)); err != nil {
		return nil, err
	}
	if c.certified, err = newTransport(config); err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport:     c,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

func newTransport(config *rest.Config) (*http.Transport, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	return &http.Transport{
		TLSClientConfig:     tlsConfig,
		DialContext:         config.Dial,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // answers pass as they are
		MaxIdleConnsPerHost: 1000, // no limit in a test
	}, err
}

// credentials are the caller's own if it has any: with a client certificate the
// apiserver would ignore a token.
type credentials struct{ bare, certified *http.Transport }

func (c credentials) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return c.bare.RoundTrip(r)
	}
	return c.certified.RoundTrip(r)
}

func closeIdle(backend *httputil.ReverseProxy) {
	c := backend.Transport.(credentials)
	c.bare.CloseIdleConnections()
	c.certified.CloseIdleConnections()
}

// exchange is one Event write on its way through the proxy. It belongs to the
// goroutine of its request.
type exchange struct {
	proxy    *Proxy
	period   *period
	w        http.ResponseWriter
	r        *http.Request
	request  Request
	body     []byte
	entry    *Entry
	open     int // the request and a late write; guarded by the proxy's mu
	acquired bool
	once     sync.Once
}

func (p *Proxy) serve(current *period, w http.ResponseWriter, r *http.Request) {
	request, isWrite := writeTarget(r)
	if !isWrite {
		p.backend.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the request is incomplete
	}
	if request.Verb == "create" {
		request.Name = nameIn(body)
	}
	x := &exchange{
		proxy: p, period: current, w: w, r: r, request: request, body: body,
		entry: &Entry{Request: request}, open: 1,
	}
	defer x.finish(0)
	fault, rng := p.admit(x)
	fault.strike(x, rng)
}

// set changes the entry.
func (x *exchange) set(change func(*Entry)) {
	x.proxy.mu.Lock()
	defer x.proxy.mu.Unlock()
	change(x.entry)
}

// forward sends the write to the backend, and returns its answer.
func (x *exchange) forward(ctx context.Context) reply {
	x.set(func(e *Entry) { e.Forwarded = true })
	ctx, cancel := context.WithTimeout(ctx, backendTimeout)
	defer cancel()
	out := x.r.Clone(ctx)
	x.proxy.backend.Rewrite(&httputil.ProxyRequest{In: x.r, Out: out})
	out.RequestURI = ""
	// Without GetBody: the transport cannot send it a second time by itself.
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body))
	response, err := x.proxy.backend.Transport.RoundTrip(out)
	if err != nil {
		return reply{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}
	}
	x.set(func(e *Entry) { e.Status = response.StatusCode })
	return reply{response.StatusCode, response.Header, body}
}

// forwardLate sends the write to the backend later, unless the period ends before.
func (x *exchange) forwardLate(by time.Duration) {
	x.set(func(*Entry) { x.open++ })
	x.period.work.Go(func() {
		defer x.set(x.endPart)
		if await.Sleep(x.period.ctx, by) == nil {
			x.forward(x.proxy.ctx)
		}
	})
}

// wait waits, and ends the exchange if its client cancels.
func (x *exchange) wait(d time.Duration) {
	if await.Sleep(x.r.Context(), d) != nil {
		panic(http.ErrAbortHandler)
	}
}

// finish releases the slot and ends the request's part of the entry, with the code for
// the client. It comes before the answer is sent, so that a client with an answer
// finds the slot free and the entry complete. Only the first call has an effect.
func (x *exchange) finish(code int) {
	x.once.Do(func() {
		x.set(func(e *Entry) {
			if x.acquired {
				x.proxy.used--
			}
			e.Answer = code
			x.endPart(e)
		})
	})
}

func (x *exchange) endPart(e *Entry) {
	x.open--
	e.Ended = x.open == 0
}

// reply is the backend's answer; the zero value is none.
type reply struct {
	code   int
	header http.Header
	body   []byte
}

// end resets the stream if the backend gave no answer.
func (a reply) end(x *exchange) {
	if a.code == 0 {
		panic(http.ErrAbortHandler)
	}
	for key, values := range a.header {
		x.w.Header()[key] = values
	}
	x.finish(a.code)
	x.w.WriteHeader(a.code)
	x.w.Write(a.body) // fails if the client has gone
}
