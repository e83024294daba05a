package main

import (
	"context"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// connection is a protobuf client without a rate limit, with TCP connections of
// its own, and with a count of what passes through it.
type connection struct {
	*kubernetes.Clientset
	traffic *traffic
	http    *http.Client
}

// connect makes one, and its first TCP connection: otherwise a turn would begin with
// each of the first requests opening one. The caller closes it.
func connect(ctx context.Context, config *rest.Config) (*connection, error) {
	c := &connection{traffic: newTraffic()}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	// client-go has clients share connections if their configurations agree; with
	// a dialer of their own they do not.
	config.Dial = new(net.Dialer).DialContext
	config.Wrap(c.traffic.through)
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	if c.Clientset, err = kubernetes.NewForConfigAndClient(config, c.http); err != nil {
		return nil, err
	}
	return c, c.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

func (c *connection) close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }
