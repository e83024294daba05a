package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/eventd/eventd/pkg/election"
)

// dialTimeout is for one connection: the Lease, the Pod, the forwarding and the TLS handshake; renewedTimeout for what an
// error says of the Lease.
const dialTimeout, renewedTimeout = 30 * time.Second, 500 * time.Millisecond

var errClosed = errors.New("the client is closed")

// dialer makes connections to the present leader. Each reads the Lease again, so that it leads to the next
// leader after a handover.
type dialer struct {
	options Options
	config  *rest.Config // of the kube-apiserver
	tls     *tls.Config  // with the caller's certificate, if it has one
	roots   *x509.CertPool
	pods    corev1client.PodInterface
	core    rest.Interface

	mu   sync.Mutex // LeaseLock is for one goroutine at a time
	lock *election.LeaseLock

	closed  context.Context
	end     context.CancelCauseFunc
	working sync.WaitGroup
}

func newDialer(config *rest.Config, own *transport.Config, options Options) (*dialer, error) {
	d := &dialer{options: options, config: config}
	var err error
	if d.tls, err = transport.TLSConfigFor(own); err != nil {
		return nil, err
	}
	if file := options.CertificateAuthority; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--certificate-authority-eventd: %w", err)
		}
		if d.roots = x509.NewCertPool(); !d.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--certificate-authority-eventd: %s has no certificate", file)
		}
	}
	leases, err := election.NewLeaseClient(config, dialTimeout)
	if err != nil {
		return nil, err
	}
	d.lock = &election.LeaseLock{Namespace: options.LeaseNamespace, Name: options.LeaseName, Client: leases}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d.core, d.pods = core.RESTClient(), core.Pods(options.LeaseNamespace)
	d.closed, d.end = context.WithCancelCause(context.Background())
	return d, nil
}

// close ends all connections and waits for the goroutines that forward them.
func (d *dialer) close() {
	d.end(errClosed)
	d.working.Wait()
}

// dial connects to the leader. It returns after the TLS handshake with a server that is verified.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no connection within %s", dialTimeout))
	defer cancel()
	defer context.AfterFunc(d.closed, cancel)()
	leader, err := d.leader(ctx)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(leader.Address)
	if err != nil {
		return nil, fmt.Errorf("the address of eventd in the Lease: %w", err)
	}
	plain, err := d.connect(ctx, leader.Identity, host, port)
	if err != nil {
		return nil, fmt.Errorf("%w, which holds the Lease %s%s: %w", ErrConnecting, d.lock.Describe(), d.renewed(", last renewed %s ago"), timedOut(ctx, err))
	}
	// The transport closes only connections that it knows to be idle.
	context.AfterFunc(d.closed, func() { _ = plain.Close() })
	secured := tls.Client(plain, d.verified(host, leader.Announcement))
	if err := secured.HandshakeContext(ctx); err != nil {
		if forwarding, ok := plain.(*forwarded); ok {
			err = forwarding.explain(err)
		}
		_ = plain.Close()
		return nil, fmt.Errorf("%w, which holds the Lease %s%s (%s at %s): %w", ErrConnecting, d.lock.Describe(), d.renewed(", last renewed %s ago"), leader.Identity, leader.Address, timedOut(ctx, err))
	}
	return secured, nil
}

// leader reads who leads, and what it announces.
func (d *dialer) leader(ctx context.Context) (election.Leader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	record, _, err := d.lock.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return election.Leader{}, fmt.Errorf("%w %s of eventd in this cluster; --lease-namespace and --lease-name name another", ErrNoLease, d.lock.Describe())
	case err != nil:
		return election.Leader{}, fmt.Errorf("%w: %w", ErrReadingLease, timedOut(ctx, err))
	case record.HolderIdentity == "":
		return election.Leader{}, fmt.Errorf("%w: the Lease %s has no holder; --lease-namespace and --lease-name name another", ErrNoLeader, d.lock.Describe())
	}
	leader := election.Leader{Identity: record.HolderIdentity, Announcement: d.lock.Announced()}
	if !leader.Complete() {
		return election.Leader{}, fmt.Errorf("the leader %s announces no address or certificate in the Lease %s", leader.Identity, d.lock.Describe())
	}
	return leader, nil
}

// renewed formats how long ago the Lease was last renewed: long, if the node of its holder has died. It is "" if that
// cannot be read now, and via the apiserver.
func (d *dialer) renewed(format string) string {
	if d == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(d.closed, renewedTimeout)
	defer cancel()
	lock := &election.LeaseLock{Namespace: d.lock.Namespace, Name: d.lock.Name, Client: d.lock.Client} // d.lock may be waiting
	record, _, err := lock.Get(ctx)
	if err != nil || record.RenewTime.IsZero() {
		return ""
	}
	return fmt.Sprintf(format, duration.HumanDuration(max(0, time.Since(record.RenewTime.Time))))
}

func (d *dialer) connect(ctx context.Context, identity, host, port string) (net.Conn, error) {
	if d.options.Connect == ConnectDirect || d.options.Connect == ConnectAuto && isLoopback(host) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	}
	return d.forward(ctx, identity, host, port)
}

// isLoopback reports whether a host is this machine: eventd runs on it, and not in a Pod.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// verified returns the configuration for a server that is the leader. A handshake with any other fails
// before the caller's certificate or token is sent.
func (d *dialer) verified(host string, leader election.Announcement) *tls.Config {
	config := d.tls.Clone()
	if d.roots != nil {
		config.InsecureSkipVerify = false
		config.RootCAs, config.ServerName = d.roots, host
		if d.options.ServerName != "" {
			config.ServerName = d.options.ServerName
		}
		return config
	}
	// Without a server name: for a name, the leader may have another certificate than the one that it announces.
	config.InsecureSkipVerify, config.ServerName = true, ""
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if err := leader.Verify(state); err != nil {
			return fmt.Errorf("nothing was sent to it, since %w", err)
		}
		return nil
	}
	return config
}
