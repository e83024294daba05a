package app

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/receiver/counters"
	"github.com/eventd/eventd/pkg/rules"
)

const (
	// metricsReceiver is the name of the receiver that counts for the metrics of the configuration, in
	// the stored cursors and as a label. Others are DNS labels, so none has it.
	metricsReceiver = "_metrics"
	// A batch of the most expensive Events takes 64 metrics several seconds.
	metricsBatchSize = 100
	metricsTimeout   = time.Minute
)

// apply puts a configuration in force. Its metrics are one more receiver, which gets every version.
func (d *delivering) apply(config *v1alpha1.EventdConfiguration, set *rules.Set) {
	views := make(map[string]delivery.View, len(config.Receivers))
	for _, r := range config.Receivers {
		views[r.Name] = view{set.For(r.Name), r.Redact}
	}
	metrics := make([]counters.Metric, len(set.Metrics()))
	for i, m := range set.Metrics() {
		metrics[i] = m
	}
	d.counters.Use(metrics)
	if len(metrics) > 0 {
		with := *config
		with.Receivers = append(slices.Clone(config.Receivers), v1alpha1.Receiver{
			Name: metricsReceiver, From: v1alpha1.FromNow,
			BatchSize: new(int32(metricsBatchSize)), Timeout: &metav1.Duration{Duration: metricsTimeout},
		})
		config, views[metricsReceiver] = &with, everything{}
	}
	d.delivery.Apply(config, func(receiver string) delivery.View { return views[receiver] })
}

// everything is the routing of a receiver that gets all versions.
type everything struct{}

func (everything) Deliver(*corev1.Event) (ok bool, route string) { return true, "" }

func (everything) Throttle(string) delivery.Throttle { return nil }

func (everything) Redact(event *corev1.Event) *corev1.Event { return event }
