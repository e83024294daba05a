package apiclient

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
)

// A dead connection is detected within pingAfter + pingTimeout. An overloaded apiserver
// answers pings all the same, since they are not requests. client-go's values add up to
// 45 s, and can be changed for the whole process only.
const (
	pingAfter        = 2 * time.Second // of silence
	pingTimeout      = 3 * time.Second
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)

// Connections is the number of HTTP/2 connections of a Client, at least. Each takes 100
// requests at once, and has one goroutine at either end that reads all its answers or
// requests: with two, the apiserver writes about a tenth more.
const Connections = 2

// idleConnections is the number of idle HTTP/1.1 connections, which take one request
// each: twice the requests that a sink has in flight by default. client-go keeps 25, and
// each request beyond them would begin with a handshake.
const idleConnections = 128

// keepAlive is for HTTP/1.1, which has no pings. It detects a dead connection while no
// request is in flight; a request on one ends at its timeout.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// NewForConfig returns a Client with connections of its own, made from
// ConfigFor(config): two over HTTP/2, and more while those are full.
func NewForConfig(config *rest.Config) (*Client, error) {
	n := Connections
	http1 := len(config.NextProtos) > 0 && !slices.Contains(config.NextProtos, "h2")
	if config.Transport != nil || http1 { // such a transport has its own connection pool
		n = 1
	}
	c := &Client{}
	for range n {
		conn, err := newConnection(config)
		if err != nil {
			return nil, err
		}
		c.connections = append(c.connections, conn)
	}
	return c, nil
}

// connection is an http.Client with one HTTP/2 connection, and more while that is full.
type connection struct {
	core, events rest.Interface
	traced       bool      // the transport reports every connection that it uses
	gate         *dialGate // nil with a transport of the caller's
	inFlight     atomic.Int32
}

func newConnection(config *rest.Config) (*connection, error) {
	own := config.Transport == nil && config.WrapTransport == nil
	var made *dialGate
	config = configFor(config, func(gate *dialGate) { made = gate })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	core, err := typedcorev1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	events, err := typedeventsv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	// net/http reports all connections. A wrapper of the caller's may hide them.
	_, known := unwrap[*http.Transport](httpClient.Transport)
	c := &connection{core: core.RESTClient(), events: events.RESTClient(), traced: own && known, gate: made}
	made = nil // client-go may keep the configuration longer than the client is used
	return c, nil
}

// send makes a request, and once more if it could not be sent and there is another
// connection: the apiserver is unreachable only if there is none. Requests go to the
// connection with the fewest in flight, so a dead one gets no more than its part.
func send[T any](ctx context.Context, c *Client, request func(*connection) (T, error)) (T, error) {
	if len(c.connections) == 1 {
		return request(c.connections[0])
	}
	answer, err := sendOn(c.next(), request)
	if err == nil || classifyTransport(err) != ClassUnreachable {
		return answer, err
	}
	other := c.leastBusy((*connection).connected)
	switch {
	case other == nil:
		return answer, err
	case ctx.Err() != nil:
		return answer, &UnsentError{err, ClassRetry}
	}
	return sendOn(other, request)
}

func sendOn[T any](c *connection, request func(*connection) (T, error)) (T, error) {
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)
	return request(c)
}

// next returns the connection for the next request: now and then one that is not
// connected, as a probe, otherwise one that is, if there is any.
func (c *Client) next() *connection {
	for _, conn := range c.connections {
		if !conn.connected() && conn.gate.mayProbe() {
			return conn
		}
	}
	return cmp.Or(c.leastBusy((*connection).connected), c.leastBusy(func(*connection) bool { return true }))
}

func (c *Client) leastBusy(among func(*connection) bool) (least *connection) {
	for _, conn := range c.connections {
		if among(conn) && (least == nil || conn.inFlight.Load() < least.inFlight.Load()) {
			least = conn
		}
	}
	return least
}

func (c *connection) connected() bool { return c.gate.connected() }

// ConfigFor returns a copy of config for clients that write Events. See
// sink.ConfigFor.
func ConfigFor(config *rest.Config) *rest.Config {
	return configFor(config, func(*dialGate) {})
}

// configFor is ConfigFor that also passes on the dial gate of each transport.
func configFor(config *rest.Config, made func(*dialGate)) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.DisableCompression = true
	config.QPS, config.RateLimiter = -1, nil
	if config.Transport == nil {
		configureTransport(config, made)
	}
	return config
}

// configureTransport has client-go build the transport, since only that follows
// credentials, certificates and CAs that change. client-go shares transports between
// similar configurations, but never one with a Dial function: its address is part of the
// cache key, and differs for each http.Client. So the settings of the transport that are
// changed here, before its first use, affect nobody else.
func configureTransport(config *rest.Config, made func(*dialGate)) {
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext
	}
	// Before the wrappers of the caller, which hide the transport.
	config.WrapTransport = transport.Wrappers(func(rt http.RoundTripper) http.RoundTripper {
		setTimeouts(rt)
		gate := newDialGate(rt)
		made(gate)
		return gate
	}, config.WrapTransport)
}

// setTimeouts changes the settings of a transport that client-go has just made.
func setTimeouts(rt http.RoundTripper) {
	if t, ok := unwrap[*http.Transport](rt); ok {
		// The HTTP/2 implementation that client-go uses prefers this to client-go's
		// settings.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
		t.TLSHandshakeTimeout = handshakeTimeout
		t.MaxIdleConnsPerHost = idleConnections
	} else {
		// A newer client-go may use another transport.
		klog.Background().Info("Connections to the apiserver have client-go's timeouts: its transport is of an unknown type")
	}
}

// unwrap finds a round tripper of a type in a chain of wrappers.
func unwrap[T http.RoundTripper](rt http.RoundTripper) (found T, ok bool) {
	for {
		if found, ok = rt.(T); ok {
			return found, true
		}
		wrapper, wraps := rt.(utilnet.RoundTripperWrapper)
		if !wraps {
			return found, false
		}
		rt = wrapper.WrappedRoundTripper()
	}
}
