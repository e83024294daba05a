package connection

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
)

const (
	// DefaultTimeout limits a request of a receiver that configures no other timeout.
	DefaultTimeout = 10 * time.Second
	// MaxResponseBytes is how much of a response's body is read.
	MaxResponseBytes = 64 << 10
	// UserAgent is sent by all receivers.
	UserAgent = "eventd"

	maxResponseHeaderBytes = 64 << 10
	// A connection without an answer to a ping is closed. Without that, a connection that a
	// firewall has forgotten takes requests for minutes.
	pingInterval = 30 * time.Second
	pingTimeout  = 10 * time.Second
)

// Client sends requests to one URL. It uses the proxy that the environment names. It is for one
// goroutine at a time, since the response to a request is awaited before the next. Make it with
// NewClient; Close closes its connections.
type Client struct {
	url         string
	timeout     time.Duration
	credentials *Credentials

	tls  *tls.Config // of transport
	http *http.Client
}

// NewClient reads the files of the configuration. Each request is limited to timeout, or to
// DefaultTimeout if that is 0. Its errors name the field.
func NewClient(rawURL string, c *configv1alpha1.Connection, timeout time.Duration) (*Client, error) {
	if err := checkURL(rawURL, c.Insecure); err != nil {
		return nil, err
	}
	credentials, err := NewCredentials(c)
	if err != nil {
		return nil, err
	}
	return &Client{url: rawURL, timeout: cmp.Or(timeout, DefaultTimeout), credentials: credentials}, nil
}

// checkURL returns errors without the URL, in which there may be a password.
func checkURL(raw string, insecure bool) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("the URL is not valid")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("the URL must begin with https:// or http://")
	case u.User != nil:
		return errors.New("the URL must not have a user or password: use headers with a file")
	case u.Fragment != "":
		return errors.New("the URL must not have a fragment")
	case u.Scheme == "http" && !insecure:
		return errors.New("the URL begins with http://, so insecure must be set")
	case u.Scheme == "https" && insecure:
		return errors.New("the URL begins with https://, so insecure must not be set")
	}
	return nil
}

// Post sends a request and returns the response, of whatever status. encoding is the content
// encoding, if any. It returns an error if there was no response. The body is not to be changed
// afterwards: the transport may still read it after a response that came early, or after an error, until
// it closes it.
func (c *Client) Post(ctx context.Context, body []byte, contentType, encoding string) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	c.renew(ctx)
	var step atomic.Value
	request, err := http.NewRequestWithContext(traced(ctx, &step), http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", UserAgent)
	request.Header.Set("Content-Type", contentType)
	if encoding != "" {
		request.Header.Set("Content-Encoding", encoding)
	}
	for _, h := range c.credentials.Headers(ctx) {
		request.Header.Set(h.Name, h.Value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.Close() // the next request is not sent over a connection that gave no answer
		if sending, ok := errors.AsType[*url.Error](err); ok {
			err = sending.Err // without the URL, whose query may be a secret
		}
		return nil, fmt.Errorf("%s: %w", step.Load(), err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return nil, errSwitched
	}
	return readResponse(response), nil
}

// traced returns a context with which a request stores in step what it does, for its error: that of a timeout
// does not say. The transport may store more when the request has failed already.
func traced(ctx context.Context, step *atomic.Value) context.Context {
	step.Store("sending")
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:          func(i httptrace.DNSStartInfo) { step.Store("looking up " + i.Host) },
		ConnectStart:      func(_, address string) { step.Store("connecting to " + address) },
		TLSHandshakeStart: func() { step.Store("TLS handshake") },
		GotConn:           func(httptrace.GotConnInfo) { step.Store("sending") },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				step.Store("waiting for the response")
			}
		},
	})
}

// errSwitched: the body of such a response is the connection, whose reads do not end with a context.
var errSwitched = errors.New("status 101: the destination has switched protocols")

func readResponse(r *http.Response) *Response {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxResponseBytes+1))
	if len(body) > MaxResponseBytes {
		body, err = body[:MaxResponseBytes], fmt.Errorf("more than %d bytes", MaxResponseBytes)
	}
	return &Response{Status: r.StatusCode, Header: r.Header, Body: body, BodyErr: err}
}

// renew makes another HTTP client if the TLS files have changed, so that all connections have been
// verified with what is in them now.
func (c *Client) renew(ctx context.Context) {
	config := c.credentials.TLS(ctx)
	if c.http != nil && c.tls == config {
		return
	}
	c.Close()
	c.tls, c.http = config, newHTTPClient(config)
}

// Close closes the connections. Another request makes a new one: by HTTP/2, one without an answer
// may not be idle yet, and would be used again. It is closed when it was idle for long.
func (c *Client) Close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
		c.http = nil
	}
}

func newHTTPClient(config *tls.Config) *http.Client {
	if config != nil {
		config = config.Clone() // the transport adds protocols
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{KeepAlive: pingInterval}).DialContext,
		TLSClientConfig:        config,
		MaxIdleConns:           1,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true, // so that the limit of a response is that of what is received
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout},
	}
	return &http.Client{
		Transport: transport,
		// Credentials go to no other host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
