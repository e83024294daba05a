package faultproxy

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// backendTimeout bounds a write that its client cannot cancel. It is above the limits
// of an apiserver and its webhooks.
const backendTimeout = time.Minute

// backend sends requests to the apiserver.
type backend struct {
	base *url.URL
	// bare has the apiserver's CA only; certified also has the client certificate, if
	// the configuration has one.
	bare, certified *transports
	// pass forwards what is no Event write.
	pass *httputil.ReverseProxy
}

func newBackend(config *rest.Config) (*backend, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	b := &backend{base: base}
	if b.bare, err = newTransports(rest.AnonymousClientConfig(config)); err != nil {
		return nil, err
	}
	if b.certified, err = newTransports(config); err != nil {
		return nil, err
	}
	b.pass = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport:     b,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return b, nil
}

// transports are used in turn: over two HTTP/2 connections the apiserver handles a
// tenth more requests than over one, whatever their number.
type transports struct {
	each [2]*http.Transport
	turn atomic.Uint32
}

func newTransports(config *rest.Config) (*transports, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	l := &transports{}
	for i := range l.each {
		l.each[i] = &http.Transport{
			TLSClientConfig:     tlsConfig.Clone(), // nil stays nil
			DialContext:         config.Dial,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // answers pass as they are
			MaxIdleConnsPerHost: 1000, // no limit in a test
		}
	}
	return l, nil
}

func (l *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.each[l.turn.Add(1)%uint32(len(l.each))].RoundTrip(r)
}

func (l *transports) close() {
	for _, t := range l.each {
		t.CloseIdleConnections()
	}
}

// RoundTrip uses the caller's own credentials if there are any: with a client
// certificate the apiserver would ignore a token.
func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return b.bare.RoundTrip(r)
	}
	return b.certified.RoundTrip(r)
}

func (b *backend) close() {
	b.bare.close()
	b.certified.close()
}

// prepare makes a client's request one to the backend. The body has no GetBody,
// so that the transport cannot send it a second time by itself.
func (b *backend) prepare(r *http.Request, body []byte) *http.Request {
	out := r.Clone(context.Background())
	(&httputil.ProxyRequest{In: r, Out: out}).SetURL(b.base)
	out.RequestURI = ""
	out.Header.Del("Connection") // is between the client and us
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return out
}

// reply is the backend's answer, read to its end, or why there is none. It is
// the Ending of a write that no fault struck.
type reply struct {
	code   int
	header http.Header
	body   []byte
	err    error
}

// send sends a prepared request.
func (b *backend) send(ctx context.Context, r *http.Request) reply {
	ctx, cancel := context.WithTimeout(ctx, backendTimeout)
	defer cancel()
	response, err := b.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{err: err}
	}
	response.Header.Del("Connection")
	return reply{code: response.StatusCode, header: response.Header, body: body}
}

func (a reply) String() string { return "the backend's answer" }

// end resets the stream if the backend gave no answer.
func (a reply) end(x *exchange) {
	if a.err != nil {
		ResetStream.end(x)
	}
	for key, values := range a.header {
		x.w.Header()[key] = values
	}
	x.finish(a.code)
	x.w.WriteHeader(a.code)
	x.w.Write(a.body) // fails if the client has gone
}
