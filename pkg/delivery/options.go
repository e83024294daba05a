package delivery

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

// The defaults of Options.
const (
	DefaultNamespace = metav1.NamespaceSystem
	DefaultConfigMap = "eventd-cursors"
)

// Source observes versions of Events, and buffers them for readers. A Delivery makes one for each
// term of leadership.
type Source interface {
	// Run observes until ctx ends, and returns soon after that. An error before that ends all
	// readers: the Delivery makes another source.
	Run(ctx context.Context) error
	// Reader returns a reader that begins at start. It does not wait. It may be called before,
	// during and after Run, and start may be before the beginning of the source.
	//
	// A start without a resource version may have an epoch, which is the highest of all receivers.
	// Without Oldest, it is after everything that is stored: the first batch has no entries, and
	// its cursor is where the reader begins.
	Reader(start observer.Start) Reader
}

// Reader reads for one receiver. Next and Close are called by one goroutine at a time, the others
// by any. Observed and OldestPending do not wait.
type Reader interface {
	// Next returns at most limit entries. It waits until there is something to return, or ctx ends.
	Next(ctx context.Context, limit int) (observer.Batch, error)
	// Observed is the number of versions that were observed for this reader: all that Next has
	// returned, or returned as superseded, and all that it has yet to return. It is final after
	// Close.
	Observed() int64
	// OldestPending is when the oldest version that Next has yet to return was observed. It is
	// zero if there is none.
	OldestPending() time.Time
	// Close ends the reader.
	Close()
}

// View is the routing of one receiver. It is safe for concurrent use.
type View interface {
	// Deliver reports whether the receiver gets an Event, and the name of the route that has decided
	// so. It is empty if no route did.
	Deliver(event *corev1.Event) (ok bool, route string)
	// Throttle returns how a route limits what it delivers to the receiver. It is nil if it does not.
	Throttle(route string) Throttle
	// Redact returns the Event without the fields that the receiver does not get. It does not
	// change the Event, which it may return.
	Redact(event *corev1.Event) *corev1.Event
}

// Routing returns the view of a receiver of the configuration, which is not nil. It is safe for
// concurrent use.
type Routing func(receiver string) View

// Trail is told what becomes of each version that a receiver has read. Superseded and handed over
// versions have no Event at hand, and are not reported. Each call takes the time of a short critical
// section, and is safe for use by many goroutines. Nothing is to be changed.
type Trail interface {
	// Delivered reports a version that the receiver has acknowledged. rejected is how many of its
	// request the receiver has rejected without saying which.
	Delivered(receiver string, event *corev1.Event, rejected int)
	// NotDelivered reports a version that a route has filtered or throttled, or, with the error, that
	// the receiver has rejected for good. The route is empty if none has decided.
	NotDelivered(receiver string, event *corev1.Event, route string, why NotDelivered, err error)
}

// NotDelivered is why a receiver did not get a version.
type NotDelivered string

const (
	NotRouted NotDelivered = "filtered"  // by a route, or by none
	Throttled NotDelivered = "throttled" // a summary stands for it
	Rejected  NotDelivered = "rejected"  // by the receiver
)

// Options of a Delivery. Begin with DefaultOptions.
type Options struct {
	// Cluster is the name of the cluster in every record. Without it, no configuration that is
	// applied may have receivers.
	Cluster string
	// Client reads and writes the ConfigMap of the cursors. It needs the rights to get, patch and
	// create it. Required.
	Client typedcorev1.ConfigMapsGetter
	// Namespace and ConfigMap are the names of the ConfigMap.
	Namespace, ConfigMap string
	// NewSource makes the source of a term that begins at start. It must not wait. Required.
	NewSource func(start observer.Start) (Source, error)
	// NewReceiver makes a receiver. An error delays this receiver until a later attempt succeeds.
	// It is called in a goroutine of the receiver. Required.
	NewReceiver func(config v1alpha1.Receiver) (receiver.Receiver, error)
	// Leading reports whether this process leads. It is called before each attempt to send, and
	// before each write of the cursors. It must not wait. nil means always.
	Leading func() bool
	// Trail, if not nil, is told what becomes of observed versions.
	Trail Trail
	// Registerer registers the metrics. nil does not register them.
	Registerer prometheus.Registerer
}

// DefaultOptions returns options with the default names. What is required is not set.
func DefaultOptions() Options {
	return Options{Namespace: DefaultNamespace, ConfigMap: DefaultConfigMap}
}

// Validate returns all violations as one error. Each names its field.
func (o *Options) Validate() error {
	var v violations.List
	v.AddIf(o.Client == nil, "Client must be set")
	v.AddIf(o.Namespace == "", "Namespace must be set")
	v.AddIf(o.ConfigMap == "", "ConfigMap must be set")
	v.AddIf(o.NewSource == nil, "NewSource must be set")
	v.AddIf(o.NewReceiver == nil, "NewReceiver must be set")
	return v.Err()
}
