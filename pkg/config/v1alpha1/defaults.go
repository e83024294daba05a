package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults of fields that are not set.
const (
	defaultBatchSize int32 = 512
	defaultTimeout         = 10 * time.Second
	defaultMaxSeries int32 = 500
)

func (c *EventdConfiguration) setDefaults() {
	for i := range c.Receivers {
		c.Receivers[i].setDefaults()
	}
	for i := range c.Routes {
		if t := c.Routes[i].Throttle; t != nil && len(t.By) == 0 {
			// Without the namespace, a tenant could write the first and the last Event of a group
			// about an object of another one, whose Events then come only as a number.
			t.By = []string{"metadata.namespace", "involvedObject.uid", "reason"}
		}
	}
	for i := range c.Metrics {
		setDefault(&c.Metrics[i].MaxSeries, new(defaultMaxSeries))
	}
}

func (r *Receiver) setDefaults() {
	setDefault(&r.From, FromNow)
	setDefault(&r.BatchSize, new(defaultBatchSize))
	if r.Timeout == nil {
		r.Timeout = &metav1.Duration{Duration: defaultTimeout}
	}
	if r.OTLP != nil {
		setDefault(&r.OTLP.Protocol, OTLPGRPC)
		setDefault(&r.OTLP.Compression, "gzip")
	}
}

func setDefault[T comparable](to *T, value T) {
	if *to == *new(T) {
		*to = value
	}
}
