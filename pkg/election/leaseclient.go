package election

import (
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// Rate limit of a LeaseLock and its watch. By default a leader writes every two
// seconds, and leader and standbys read after each reported write.
const (
	leaseQPS   = 10
	leaseBurst = 20
)

// NewLeaseClient returns a client for a LeaseLock and a LeaseWatch. It has its own
// connections and rate limit, so that no other traffic delays the Lease. timeout
// limits the time to connect.
//
// It uses HTTP/1.1: a request that times out closes its connection, and the next
// request uses another one. With HTTP/2, all requests would wait on a hanging
// connection until a ping fails.
func NewLeaseClient(config *rest.Config, timeout time.Duration) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NextProtos = []string{"http/1.1"}
	config.QPS, config.Burst, config.RateLimiter = leaseQPS, leaseBurst, nil
	config.Timeout = 0 // watches have no timeout, other requests have that of their context
	if config.Dial == nil && config.Transport == nil {
		// client-go shares connections between equal configurations. This dialer makes
		// the configuration unique.
		config.Dial = (&net.Dialer{Timeout: timeout, KeepAlive: timeout}).DialContext
	}
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.RESTClient(), nil
}
