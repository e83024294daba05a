package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/lifecycle"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/pkg/receiver/counters"
	"github.com/eventd/eventd/pkg/receiver/jetstream"
	"github.com/eventd/eventd/pkg/receiver/jsonlines"
	"github.com/eventd/eventd/pkg/receiver/otlp"
	"github.com/eventd/eventd/pkg/rules"
)

// wayOut is what --config adds: it delivers the Events that are stored, and decides on what clients
// report. A process without --config has none.
type wayOut struct {
	configuration *configuration
	delivery      *delivery.Delivery
	pipe          *pipeline.Pipeline
	counters      counters.Counters
}

// newWayOut reads the configuration. Nothing is observed before this process leads.
func (p *process) newWayOut(ctx context.Context, cluster *rest.Config) (*wayOut, error) {
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
	w := &wayOut{pipe: p.pipe}
	options.NewReceiver = w.newReceiver
	if err := p.registry.Register(&w.counters); err != nil {
		return nil, err
	}
	if w.delivery, err = delivery.New(options); err != nil {
		return nil, err
	}
	if w.configuration, err = newConfiguration(p.options, p.registry); err != nil {
		return nil, err
	}
	w.configuration.apply = w.apply
	if err := w.configuration.load(ctx); err != nil {
		return nil, fmt.Errorf("--config %s: %w", p.options.ConfigFile, err)
	}
	return w, nil
}

// components returns the parts: every replica follows the file, and the leader delivers.
func (w *wayOut) components() []lifecycle.Component {
	return []lifecycle.Component{
		{Name: "configuration", Run: w.configuration.follow},
		{Name: "delivery", NeedsLeadership: true, Run: w.delivery.Run},
	}
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
func (w *wayOut) newReceiver(config v1alpha1.Receiver) (receiver.Receiver, error) {
	switch {
	case config.Name == metricsReceiver:
		return w.counters.Receiver(), nil
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
