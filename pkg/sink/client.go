package sink

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// Client sends requests to the apiserver through one of the two APIs. Events are in the
// form of core/v1 in either case. Errors are those of client-go. It must be safe for
// concurrent use.
type Client interface {
	Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error)
	// Patch applies a strategic merge patch that both APIs read the same.
	Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error)
}

// Updater is a Client that can also read an Event as JSON and write it back. A sink does
// so where patches are forbidden. A Client that does not implement Updater creates and
// patches only.
type Updater interface {
	Client
	// Get returns the JSON of an Event as the apiserver has it.
	Get(ctx context.Context, api occurrence.API, namespace, name string) (event []byte, err error)
	// Update replaces an Event by the JSON of one, which has the UID and the
	// resourceVersion of what it replaces.
	Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error)
}

// NewClient returns a Client that uses client-go's REST clients of core/v1 and of
// events.k8s.io/v1, as RESTClient of their typed clients returns them. It needs the rights
// to create and to patch events in the API groups of the occurrences; docs/library.md
// states what happens without the latter. It is an Updater.
//
// client-go's own retries are off: they would occupy a slot of another series, and hide
// the answer to the first attempt.
func NewClient(core, events rest.Interface) Updater { return apiclient.New(core, events) }

// NewClientForConfig returns a Client with connections of its own, made from
// ConfigFor(config): two over HTTP/2, and more while those are full.
//
// There is nothing to close: an idle connection ends after 90 seconds, and what client-go
// runs to follow certificate files ends when the Client is garbage.
func NewClientForConfig(config *rest.Config) (Client, error) {
	c, err := apiclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ConfigFor returns a copy of config for clients that write Events, such as those of
// kubernetes.NewForConfig.
//
//   - Every http.Client that is made from it has connections of its own, also two that
//     are made from the same one. The clients of one clientset share one http.Client.
//   - A dead connection is detected within 5 seconds. The requests on it end with an
//     error, and the next ones use a new connection.
//   - Bodies are protobuf both ways, with JSON accepted, and not compressed: Events are
//     small, and mostly on their way to the apiserver.
//   - There is no rate limit. The sink has one: Options.QPS.
//
// Everything else of config is as client-go has it: credentials and certificates and their
// rotation, exec plugins, impersonation, proxies, the user agent, the Dial function. With a
// Transport of the caller's, the connections are those of that.
func ConfigFor(config *rest.Config) *rest.Config { return apiclient.ConfigFor(config) }
