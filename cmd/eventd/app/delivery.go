package app

import (
	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/pkg/receiver/counters"
	"github.com/eventd/eventd/pkg/receiver/jetstream"
	"github.com/eventd/eventd/pkg/receiver/jsonlines"
	"github.com/eventd/eventd/pkg/receiver/otlp"
	"github.com/eventd/eventd/pkg/rules"
)

// delivering delivers the Events that are stored to the receivers of the configuration.
type delivering struct {
	delivery *delivery.Delivery
	counters counters.Counters
}

// newDelivering has no receivers yet. Nothing is observed before this process leads.
func (p *process) newDelivering(cluster *rest.Config) (*delivering, error) {
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent() + " delivery"
	source, err := observer.NewSource(config)
	if err != nil {
		return nil, err
	}
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	observing, err := observer.NewMetrics(p.registry)
	if err != nil {
		return nil, err
	}
	options := delivery.DefaultOptions()
	options.Cluster = p.options.ClusterName
	options.Client, options.Namespace = client, p.options.LeaderElection.ResourceNamespace
	options.NewSource = func(start observer.Start) (delivery.Source, error) {
		// A reader of everything that is stored lists by itself.
		o, err := observer.New(observer.Options{Source: source, Start: start.Cursor, Metrics: observing})
		return delivery.NewSource(o), err
	}
	if p.elector != nil {
		options.Leading = p.elector.Leading
	}
	options.Registerer = p.registry
	if p.trail != nil {
		options.Trail = p.trail
	}
	d := &delivering{}
	options.NewReceiver = d.newReceiver
	if err := p.registry.Register(&d.counters); err != nil {
		return nil, err
	}
	d.delivery, err = delivery.New(options)
	return d, err
}

// view is the routing and the redaction of one receiver.
type view struct {
	*rules.Filter
	redacted []string
}

func (v view) Throttle(route string) delivery.Throttle {
	if t := v.Filter.Throttle(route); t != nil {
		return t
	}
	return nil
}

func (v view) Redact(event *corev1.Event) *corev1.Event { return rules.Redact(event, v.redacted) }

// newReceiver makes the receiver of a valid configuration.
func (d *delivering) newReceiver(config v1alpha1.Receiver) (receiver.Receiver, error) {
	switch {
	case config.Name == metricsReceiver:
		return d.counters.Receiver(), nil
	case config.OTLP != nil:
		return otlp.New(config.OTLP, config.Timeout.Duration)
	case config.CloudEvents != nil:
		return cloudevents.New(config.CloudEvents, config.Timeout.Duration)
	case config.JetStream != nil:
		return jetstream.New(*config.JetStream)
	default:
		return jsonlines.New(*config.JSONLines)
	}
}
