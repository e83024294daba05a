package pipeline

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registrations is a prometheus.Registerer that remembers what was registered
// through it, so that all of it can be taken back. Without an underlying
// registerer it does nothing.
type registrations struct {
	underlying prometheus.Registerer

	mu         sync.Mutex
	registered []prometheus.Collector
}

var _ prometheus.Registerer = &registrations{}

// labelled returns registrations under the labels of a broadcaster and of one
// of its sinks, "" for what belongs to none. All metrics of an assembly have
// both, since metrics of one name must have the same labels.
func labelled(r prometheus.Registerer, broadcaster, sink string) *registrations {
	if r == nil {
		return &registrations{}
	}
	labels := prometheus.Labels{"broadcaster": broadcaster, "sink": sink}
	return &registrations{underlying: prometheus.WrapRegistererWith(labels, r)}
}

// Register implements prometheus.Registerer.
func (r *registrations) Register(c prometheus.Collector) error {
	if r.underlying == nil {
		return nil
	}
	if err := r.underlying.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered = append(r.registered, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registrations) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *registrations) Unregister(c prometheus.Collector) bool {
	return r.underlying != nil && r.underlying.Unregister(c)
}

// takeBack unregisters everything.
func (r *registrations) takeBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.registered {
		r.underlying.Unregister(c)
	}
	r.registered = nil
}
