package election

import (
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// The rate at which a LeaseLock and its watch may ask. A leader writes every other
// second, and both it and a standby read as often as that is reported.
const (
	leaseQPS   = 10
	leaseBurst = 20
)

// NewLeaseClient returns a client for a LeaseLock and a LeaseWatch, with
// connections, and a rate limit, of its own: what else a process asks the
// apiserver cannot hold up the Lease. A connection is to be made within timeout.
//
// It speaks HTTP/1.1. There a request that is not answered in time takes its
// connection with it, and the next one gets another, while with HTTP/2 all
// requests go on waiting on a connection that hangs until a ping finds out.
func NewLeaseClient(config *rest.Config, timeout time.Duration) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NextProtos = []string{"http/1.1"}
	config.QPS, config.Burst, config.RateLimiter = leaseQPS, leaseBurst, nil
	config.Timeout = 0 // a watch goes on; what is to end in time has a context
	if config.Dial == nil && config.Transport == nil {
		// client-go shares the connections of equal configurations. A dialer of
		// its own makes this one differ.
		config.Dial = (&net.Dialer{Timeout: timeout, KeepAlive: timeout}).DialContext
	}
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.RESTClient(), nil
}
