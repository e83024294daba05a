package sink

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A connection whose other end is gone without a word is noticed within the sum
// of the first two. An apiserver that is merely busy answers pings all the same:
// they are not requests, and wait for none. client-go's values add up to 45 s,
// and can be changed for the whole process only.
const (
	pingAfter        = 2 * time.Second // of silence
	pingTimeout      = 3 * time.Second
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)

// connections is how many HTTP/2 connections a client has at least. Each takes 100
// requests at once, and each has one goroutine at either end that reads all of its
// answers or requests: over two, the apiserver writes about a tenth more.
const connections = 2

// idleConnections is how many connections are kept over HTTP/1.1, which takes one
// for each request: twice as many as a sink has requests in flight by default.
// client-go keeps 25, and the others would begin with a handshake each time.
const idleConnections = 128

// keepAlive is for HTTP/1.1, which has no pings. It finds a connection that died
// while nothing was asked; a request on one ends at its deadline.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// NewClientForConfig returns a Client with connections of its own, made from
// ConfigFor(config): two over HTTP/2, and more while those are full.
//
// There is nothing to close: a connection that is not used ends after 90
// seconds, and what client-go keeps running to follow certificate files ends
// when the Client is garbage.
func NewClientForConfig(config *rest.Config) (Client, error) {
	http1 := len(config.NextProtos) > 0 && !slices.Contains(config.NextProtos, "h2")
	if config.Transport != nil || http1 { // it knows how many it has, or it has one for each request
		lane, err := newLane(config)
		if err != nil {
			return nil, err
		}
		return &lane.client, nil
	}
	var l lanes
	for i := range l {
		var err error
		if l[i], err = newLane(config); err != nil {
			return nil, err
		}
	}
	return &l, nil
}

// lane is a client with one connection, and more while that is full.
type lane struct {
	client
	start    *dialGate // nil with a transport of the caller's
	inFlight atomic.Int32
}

func newLane(config *rest.Config) (*lane, error) {
	own := config.Transport == nil && config.WrapTransport == nil
	var made *dialGate
	config = configFor(config, func(start *dialGate) { made = start })
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
	// net/http tells of all connections, unless something of the caller's stands
	// between, which may keep that to itself.
	_, known := unwrap[*http.Transport](httpClient.Transport)
	l := &lane{start: made}
	l.client = client{core: core.RESTClient(), events: events.RESTClient(), tells: own && known}
	made = nil // client-go may remember the configuration for longer than the client is used
	return l, nil
}

// lanes share the requests, so that each has as many in flight as the others: one
// on which nothing is answered any more takes its part of them, and no more. Nobody
// has to wait for a connection that cannot be made, as where a load balancer leads
// to an apiserver that has gone, if there is another one.
type lanes [connections]*lane

func (l *lanes) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return ask(ctx, l, func(c *client) (*corev1.Event, error) { return c.Create(ctx, api, event) })
}

func (l *lanes) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return ask(ctx, l, func(c *client) (*corev1.Event, error) { return c.Patch(ctx, api, namespace, name, patch) })
}

// Get implements Updater.
func (l *lanes) Get(ctx context.Context, api occurrence.API, namespace, name string) ([]byte, error) {
	return ask(ctx, l, func(c *client) ([]byte, error) { return c.Get(ctx, api, namespace, name) })
}

// Update implements Updater.
func (l *lanes) Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	return ask(ctx, l, func(c *client) (*corev1.Event, error) { return c.Update(ctx, api, namespace, name, event) })
}

// ask makes a request, and once more if it could not be sent and there is another
// connection: only if there is none is the apiserver out of reach.
func ask[T any](ctx context.Context, l *lanes, request func(*client) (T, error)) (T, error) {
	answer, err := askOn(l.next(), request)
	if err == nil || classifyTransport(err) != classUnreachable {
		return answer, err
	}
	other := l.leastBusy((*lane).connected)
	switch {
	case other == nil:
		return answer, err
	case ctx.Err() != nil:
		return answer, &unsent{err, classNotTaken}
	}
	return askOn(other, request)
}

// next is where the next request goes: once in a while to a lane without a
// connection, to find out; otherwise to one that has one, if there is any.
func (l *lanes) next() *lane {
	for _, lane := range l {
		if !lane.connected() && lane.start.mayProbe() {
			return lane
		}
	}
	return cmp.Or(l.leastBusy((*lane).connected), l.leastBusy(func(*lane) bool { return true }))
}

func (l *lanes) leastBusy(among func(*lane) bool) (least *lane) {
	for _, lane := range l {
		if among(lane) && (least == nil || lane.inFlight.Load() < least.inFlight.Load()) {
			least = lane
		}
	}
	return least
}

func (l *lane) connected() bool { return l.start.connected() }

func askOn[T any](l *lane, request func(*client) (T, error)) (T, error) {
	l.inFlight.Add(1)
	defer l.inFlight.Add(-1)
	return request(&l.client)
}

// ConfigFor returns a copy of config from which clients are made that write
// Events; give it to kubernetes.NewForConfig where a set of clients is asked for.
//
//   - Every http.Client that is made from it has connections of its own, also
//     two that are made from the same one: a set of clients is one http.Client.
//   - A connection that is dead without a word is noticed within 5 seconds; the
//     requests on it end with an error, and the next ones take a new connection.
//   - Bodies are protobuf both ways, with JSON accepted, and not compressed:
//     Events are small, and mostly on their way to the apiserver.
//   - There is no rate limit. That is the sink's: Options.QPS.
//
// Everything else of config is as client-go has it: credentials and certificates
// and their rotation, exec plugins, impersonation, proxies, the user agent, the
// Dial function. With a Transport of the caller's, connections are the business
// of that.
func ConfigFor(config *rest.Config) *rest.Config {
	return configFor(config, func(*dialGate) {})
}

// configFor is ConfigFor that shows what a transport begins its connections with.
func configFor(config *rest.Config, show func(*dialGate)) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.DisableCompression = true
	config.QPS, config.RateLimiter = -1, nil
	if config.Transport == nil {
		connectAlone(config, show)
	}
	return config
}

// connectAlone lets client-go build the transport, with all that it does to
// follow credentials, certificates and CAs that change, and which is not to be
// had without its transport. client-go shares transports between configurations
// that look alike, but never one with a Dial function: each http.Client has that
// under another address in the key of the cache. So what is set on the transport
// here, before anybody uses it, nobody else gets.
func connectAlone(config *rest.Config, show func(*dialGate)) {
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext
	}
	// Before the wrappers of the caller, which hide the transport.
	config.WrapTransport = transport.Wrappers(func(rt http.RoundTripper) http.RoundTripper {
		setUp(rt)
		start := newDialGate(rt)
		show(start)
		return start
	}, config.WrapTransport)
}

// setUp sets up a transport that client-go has just made.
func setUp(rt http.RoundTripper) {
	if t, ok := unwrap[*http.Transport](rt); ok {
		// The HTTP/2 implementation that client-go brings honours this, and
		// prefers it to client-go's settings.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
		t.TLSHandshakeTimeout = handshakeTimeout
		t.MaxIdleConnsPerHost = idleConnections
	} else {
		// Another client-go than the one that this was written for.
		klog.Background().Info("Connections to the apiserver have client-go's time-outs: its transport is of an unknown type")
	}
}

// unwrap looks for a round tripper among those that one consists of.
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
