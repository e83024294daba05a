package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/identity"
)

const (
	podsPerNode = 30
	// podsPerNamespace and podsPerReplicaSet decide how many namespaces and owners there are.
	podsPerNamespace  = 300
	podsPerReplicaSet = 10
)

// A kubelet limits its Events by eventRecordQPS and eventBurst (pkg/kubelet/apis/config/v1beta1/defaults.go).
const kubeletQPS, kubeletBurst = 50, 100

// cluster is a simulated one. Its reporters have connections and identities of their own, as the kubelets
// and controllers of a cluster have: a kubelet a client certificate and an address, a controller the token of
// a ServiceAccount.
type cluster struct {
	nodes     int
	authority *authority
	endpoint  *rest.Config // of eventd, without credentials
	roots     *x509.CertPool
	tally     *tally
	// oneAddress: all kubelets connect from one address, as behind a NAT.
	oneAddress bool

	kubelets    map[int]*reporter // those that have something to report
	controllers map[string]*reporter
	transports  []*http.Transport
}

func newCluster(nodes int, a *authority, endpoint *rest.Config) (*cluster, error) {
	c := &cluster{
		nodes: nodes, authority: a, endpoint: endpoint, roots: x509.NewCertPool(), tally: &tally{},
		kubelets: make(map[int]*reporter), controllers: make(map[string]*reporter),
	}
	if !c.roots.AppendCertsFromPEM(endpoint.CAData) {
		return nil, fmt.Errorf("no CA of eventd")
	}
	return c, nil
}

func nodeName(node int) string { return fmt.Sprintf("node-%05d", node) }

// kubelet is the reporter of a node.
func (c *cluster) kubelet(ctx context.Context, node int) (*reporter, error) {
	if r := c.kubelets[node]; r != nil {
		return r, nil
	}
	cert, err := c.authority.issue("system:node:"+nodeName(node), "system:nodes")
	if err != nil {
		return nil, err
	}
	address := net.IPv4(127, 0, 0, 1)
	if !c.oneAddress {
		address = net.IPv4(127, byte(1+node>>16), byte(node>>8), byte(node))
	}
	client, err := c.client(&cert, address, &rest.Config{QPS: kubeletQPS, Burst: kubeletBurst})
	if err != nil {
		return nil, err
	}
	r := &reporter{
		source: corev1.EventSource{Component: "kubelet", Host: nodeName(node)},
		sink:   coreSink{ctx, client.core}, correlator: newCorrelator(), tally: c.tally,
	}
	c.kubelets[node] = r
	return r, nil
}

// controller is the reporter of a controller of the control plane, which has a token.
func (c *cluster) controller(ctx context.Context, name string) (*reporter, error) {
	if r := c.controllers[name]; r != nil {
		return r, nil
	}
	client, err := c.client(nil, net.IPv4(127, 0, 0, 1), &rest.Config{QPS: -1, BearerToken: controllers[name]})
	if err != nil {
		return nil, err
	}
	r := &reporter{source: corev1.EventSource{Component: name}, sink: coreSink{ctx, client.core}, correlator: newCorrelator(), tally: c.tally}
	if name == scheduler {
		r.sink, r.correlator = newStyleSink{ctx, client.events}, nil
	}
	c.controllers[name] = r
	return r, nil
}

func newCorrelator() *record.EventCorrelator {
	return record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{})
}

// controllers have their own ServiceAccounts, and these tokens.
var controllers = map[string]string{
	nodeController: "token-of-node", replicaSetController: "token-of-replicaset",
	deploymentController: "token-of-deployment", scheduler: "token-of-scheduler",
}

const (
	nodeController       = "node-controller"
	replicaSetController = "replicaset-controller"
	deploymentController = "deployment-controller"
	scheduler            = "default-scheduler"
)

// clients are those of one reporter, which share a connection.
type clients struct {
	core   typedcorev1.CoreV1Interface
	events typedeventsv1.EventsV1Interface
}

// client returns clients with one HTTP/2 connection, as client-go makes it: with pings, but no session
// tickets.
func (c *cluster) client(cert *tls.Certificate, from net.IP, config *rest.Config) (clients, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: c.roots, ServerName: c.endpoint.ServerName},
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if cert != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*cert}
	}
	c.transports = append(c.transports, transport)
	config.Host = c.endpoint.Host
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	var through http.RoundTripper = transport
	if config.BearerToken != "" {
		through = withToken{config.BearerToken, transport}
	}
	client := &http.Client{Transport: through}
	core, err := typedcorev1.NewForConfigAndClient(config, client)
	if err != nil {
		return clients{}, err
	}
	events, err := typedeventsv1.NewForConfigAndClient(config, client)
	return clients{core, events}, err
}

// withToken adds a token to requests: a client that is given its http.Client does not.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(req)
}

// close closes all connections.
func (c *cluster) close() {
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

// pod is one of a node's, by a number that no other Pod has.
func (c *cluster) pod(number int) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: c.namespace(number),
		Name:            fmt.Sprintf("web-5d8f9c7b4-%06d", number),
		UID:             types.UID(fmt.Sprintf("0a1b2c3d-0000-1111-2222-%012d", number)),
		ResourceVersion: "12345",
	}
}

// namespace spreads the Pods of each node over the namespaces.
func (c *cluster) namespace(pod int) string {
	count := max(1, c.nodes*podsPerNode/podsPerNamespace)
	return fmt.Sprintf("team-%04d", (pod/podsPerNode*7+pod%podsPerNode*131)%count)
}

// container is the one of a Pod.
func container(pod corev1.ObjectReference) corev1.ObjectReference {
	pod.FieldPath = "spec.containers{app}"
	return pod
}

// coreSink writes through core/v1, as EventSinkImpl of client-go does, within a context.
type coreSink struct {
	ctx    context.Context
	client typedcorev1.CoreV1Interface
}

func (s coreSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.client.Events("").CreateWithEventNamespaceWithContext(s.ctx, e)
}

func (s coreSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.client.Events("").UpdateWithEventNamespaceWithContext(s.ctx, e)
}

func (s coreSink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.client.Events("").PatchWithEventNamespaceWithContext(s.ctx, e, patch)
}

// newStyleSink writes through events.k8s.io, as the scheduler does.
type newStyleSink struct {
	ctx    context.Context
	client typedeventsv1.EventsV1Interface
}

func (s newStyleSink) Create(e *corev1.Event) (*corev1.Event, error) {
	out := identity.ToEventsV1(e)
	out.EventTime, out.Action = metav1.NowMicro(), "Binding"
	out.ReportingInstance = scheduler + "-0"
	out.DeprecatedCount, out.DeprecatedFirstTimestamp, out.DeprecatedLastTimestamp = 0, metav1.Time{}, metav1.Time{}
	out.DeprecatedSource = corev1.EventSource{}
	stored, err := s.client.Events(e.Namespace).Create(s.ctx, out, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return identity.ToCoreV1(stored), nil
}

func (s newStyleSink) Update(*corev1.Event) (*corev1.Event, error) { panic("not used") }

func (s newStyleSink) Patch(*corev1.Event, []byte) (*corev1.Event, error) { panic("not used") }
