// Package client is a client of query.eventd.io for people with a kubeconfig: it finds eventd, verifies it,
// and uses the caller's own credentials.
//
// By default it reads eventd's Lease through the kube-apiserver, connects to the leader's Pod as kubectl
// port-forward does, and sends nothing before the server has proven to be the one that the Lease announces.
// So the caller's token reaches only whom the writers of the Lease name; they are part of the control plane.
//
// With ConnectAPIServer it sends queries to the kube-apiserver, which passes them on.
//
// A Client is safe for concurrent use. Close ends its connections and its goroutines.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// maxBody bounds one answer.
	maxBody = 64 << 20
	// pingAfter and pingTimeout detect a dead connection below a watch on which nothing happens.
	pingAfter, pingTimeout = 15 * time.Second, 15 * time.Second
)

// errPlain ends a request without TLS, which only another server could have asked for.
var errPlain = errors.New("eventd is served by TLS only")

// errImpersonation is why impersonation is refused: eventd would not do it, but answer as to the caller itself.
var errImpersonation = errors.New("--as, --as-group, --as-uid and --as-user-extra (or impersonation in the kubeconfig) are not possible over a connection to eventd, which knows callers by their own credentials; they are with --connect=apiserver")

// Client sends queries to one eventd.
type Client struct {
	http    *http.Client
	base    *url.URL
	group   string
	timeout time.Duration // of a request that is not a watch; 0 is none
	dialer  *dialer       // nil via the apiserver

	maxSilence, leaderPatience time.Duration // but for tests the constants
	wasSilent                  atomic.Bool   // eventd, so its idle connections are not used again
}

// New returns a client with the credentials of a kubeconfig. It connects at the first request.
func New(config *rest.Config, options Options) (*Client, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	c := &Client{group: cmp.Or(options.Group, v1alpha1.GroupName), timeout: config.Timeout, maxSilence: maxSilence, leaderPatience: leaderPatience}
	var carrier http.RoundTripper
	var err error
	if options.Connect == ConnectAPIServer {
		if c.base, _, err = rest.DefaultServerUrlFor(config); err == nil {
			carrier, err = rest.TransportFor(config)
		}
	} else {
		c.base = &url.URL{Scheme: "https", Host: "eventd"} // each connection goes to the leader
		carrier, err = c.toEventd(config, options)
	}
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{
		Transport: carrier,
		// The credentials are for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// toEventd returns a transport to eventd that adds the caller's credentials.
func (c *Client) toEventd(config *rest.Config, options Options) (http.RoundTripper, error) {
	if i := config.Impersonate; i.UserName != "" || i.UID != "" || len(i.Groups) > 0 || len(i.Extra) > 0 {
		return nil, errImpersonation
	}
	own, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	own.TLS.NextProtos = []string{"h2", "http/1.1"}
	if c.dialer, err = newDialer(config, own, options); err != nil {
		return nil, err
	}
	carrier := &http.Transport{
		DialTLSContext:    c.dialer.dial,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return nil, errPlain },
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   90 * time.Second,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	return transport.HTTPWrappersForConfig(own, carrier)
}

// Close ends all connections. Requests that are open fail.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	if c.dialer != nil {
		c.dialer.close()
	}
}

// Do sends a GET of a resource of the API. The caller closes the body of the answer, whatever its code.
func (c *Client) Do(ctx context.Context, resource string, query url.Values, header http.Header) (*http.Response, error) {
	target := c.base.JoinPath("apis", c.group, v1alpha1.GroupVersion.Version, resource)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if c.wasSilent.Load() { // until it answers: a request that was given up takes a moment to leave its connection
		utilnet.CloseIdleConnectionsFor(c.http.Transport) // the next one leads to who leads now
	}
	resp, err := c.http.Do(req)
	if late := errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), errLate); late || err == nil {
		c.wasSilent.Store(late)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL says nothing to the user
	}
	return resp, err
}

// Get decodes the answer to a query. It asks again when eventd asks for that, or has no leader at the moment.
func (c *Client) Get(ctx context.Context, resource string, query url.Values, into any) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s (--request-timeout)", c.timeout))
		defer cancel()
	}
	var last error
	for attempt := 1; ; attempt++ {
		body, err := c.get(ctx, resource, query)
		if err == nil {
			return json.Unmarshal(body, into)
		}
		wait, again := askAgain(err)
		switch {
		case ctx.Err() != nil:
			return cmp.Or(last, fmt.Errorf("querying %s%s: %w", c.group, c.dialer.renewed(", whose Lease was last renewed %s ago"), context.Cause(ctx)))
		case !again || attempt == maxAttempts || sleep.For(ctx, wait) != nil:
			return err
		}
		last = err
	}
}

// timedOut returns the cause of a context that has ended, else err.
func timedOut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *Client) get(ctx context.Context, resource string, query url.Values) ([]byte, error) {
	resp, err := c.Do(ctx, resource, query, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.answerError(resp, resource)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("the answer is larger than %d MiB", maxBody>>20)
	}
	return body, err
}
