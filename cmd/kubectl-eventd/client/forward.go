package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward opens a connection to a port of the leader's Pod, as kubectl port-forward does, but without a local
// port that others could connect to.
func (d *dialer) forward(ctx context.Context, identity, host, port string) (net.Conn, error) {
	pod, err := d.pod(ctx, identity, host)
	if err != nil {
		return nil, err
	}
	conn, err := d.upgrade(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("forwarding to the Pod %s/%s: %w", d.options.LeaseNamespace, pod, err)
	}
	forwarding, err := d.openPort(conn, port)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("forwarding to port %s of the Pod %s/%s: %w", port, d.options.LeaseNamespace, pod, err)
	}
	return forwarding, nil
}

// pod returns the name of the Pod with an identity and an IP address. The identity begins with the name of its
// host, which is that of the Pod unless it uses the network of its node.
func (d *dialer) pod(ctx context.Context, identity, ip string) (string, error) {
	name := identity
	if end := strings.LastIndexByte(identity, '_'); end > 0 {
		name = identity[:end]
	}
	pod, err := d.pods.Get(ctx, name, metav1.GetOptions{})
	if err == nil && (pod.Status.PodIP == "" || hasIP(pod, ip)) {
		return name, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("finding the Pod of the leader: %w", err)
	}
	list, err := d.pods.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.podIP", ip).String(), LabelSelector: "app.kubernetes.io/name=eventd"})
	if err != nil {
		return "", fmt.Errorf("finding the Pod of the leader: %w", err)
	}
	if len(list.Items) == 0 {
		return "", fmt.Errorf("there is no Pod %s, nor one of eventd with the address %s, in namespace %s; --connect=direct connects to the address itself", name, ip, d.options.LeaseNamespace)
	}
	return list.Items[0].Name, nil
}

func hasIP(pod *corev1.Pod, ip string) bool {
	return pod.Status.PodIP == ip || slices.ContainsFunc(pod.Status.PodIPs, func(p corev1.PodIP) bool { return p.IP == ip })
}

// upgrade opens a connection of streams to a Pod: over a websocket, or else over SPDY, which apiservers before
// 1.30 and some proxies need.
func (d *dialer) upgrade(ctx context.Context, pod string) (httpstream.Connection, error) {
	target := d.core.Post().Resource("pods").Namespace(d.options.LeaseNamespace).Name(pod).SubResource("portforward").URL()
	carrier, upgrader, err := spdy.RoundTripperFor(d.config)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: carrier}, http.MethodPost, target)
	overWebsocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, d.config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(overWebsocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	// Neither takes a context.
	type result struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan result)
	d.working.Go(func() {
		conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err == nil && protocol != portforward.PortForwardProtocolV1Name {
			_ = conn.Close()
			err = fmt.Errorf("the server's protocol is %q, not %q", protocol, portforward.PortForwardProtocolV1Name)
		}
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// openPort opens the two streams of a connection to a port: one for its data, and one on which the node says
// why it fails.
func (d *dialer) openPort(conn httpstream.Connection, port string) (*forwarded, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failures.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	f := &forwarded{Conn: near, far: far, streams: conn, failed: make(chan struct{})}
	d.working.Go(func() {
		_, _ = io.Copy(data, far)
		_, _ = data.Close(), far.Close()
	})
	d.working.Go(func() {
		_, _ = io.Copy(far, data)
		_ = far.Close()
	})
	d.working.Go(func() {
		defer close(f.failed)
		text, _ := io.ReadAll(io.LimitReader(failures, maxFailure))
		if len(text) > 0 {
			f.failure = errors.New(strings.TrimSpace(string(text)))
			_ = far.Close()
		}
	})
	return f, nil
}

const (
	// maxFailure bounds what a node says about a connection that fails.
	maxFailure = 4 << 10
	// failureWait is how long that may come after the end of the data.
	failureWait = time.Second
)

// forwarded is a connection to a port of a Pod. It is a pipe, which has deadlines, and whose other end is
// copied to and from the streams.
type forwarded struct {
	net.Conn
	far     net.Conn
	streams httpstream.Connection
	failed  chan struct{} // closed when failure is set, or will not be
	failure error
}

// Close implements net.Conn.
func (f *forwarded) Close() error {
	_ = f.far.Close()
	return errors.Join(f.Conn.Close(), f.streams.Close())
}

// explain returns what the node says about a connection that has failed, or else err.
func (f *forwarded) explain(err error) error {
	timer := time.NewTimer(failureWait)
	defer timer.Stop()
	select {
	case <-f.failed:
		if f.failure != nil {
			return f.failure
		}
	case <-timer.C:
	}
	return err
}
