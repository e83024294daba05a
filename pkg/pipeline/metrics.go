package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/ledger"
)

// registrations is a prometheus.Registerer that can unregister everything registered with
// it. Without an underlying Registerer it does nothing.
//
// Those of a broadcaster are delayed until publish: the underlying Registerer is user code,
// which may fail or never return. Its errors must not stop a sink.
type registrations struct {
	underlying prometheus.Registerer
	delayed    bool

	mu          sync.Mutex
	unpublished []prometheus.Collector
	registered  []prometheus.Collector
	closed      bool
}

var _ prometheus.Registerer = &registrations{}

// labelled returns delayed registrations with the labels of a broadcaster and of a sink, ""
// for none. All metrics have both labels, since metrics of one name must have the same.
func labelled(r prometheus.Registerer, broadcaster, sink string) *registrations {
	if r == nil {
		return &registrations{}
	}
	labels := prometheus.Labels{"broadcaster": broadcaster, "sink": sink}
	return &registrations{underlying: prometheus.WrapRegistererWith(labels, r), delayed: true}
}

// Register implements prometheus.Registerer.
func (r *registrations) Register(c prometheus.Collector) error {
	if r.underlying == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delayed {
		r.unpublished = append(r.unpublished, c)
		return nil
	}
	if err := register(r.underlying, c); err != nil {
		return err
	}
	r.registered = append(r.registered, c)
	return nil
}

// publish registers what was delayed. It continues after an error, and returns the first.
func (r *registrations) publish() (first error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.unpublished {
		if r.closed {
			break
		}
		if err := register(r.underlying, c); err == nil {
			r.registered = append(r.registered, c)
		} else if first == nil {
			first = err
		}
	}
	r.unpublished = nil
	return first
}

// register recovers a panic of the Registerer.
func register(r prometheus.Registerer, c prometheus.Collector) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Registerer panicked: %v", p)
		}
	}()
	return r.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *registrations) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer. Delayed registrations are unregistered
// together, by unregisterAll.
func (r *registrations) Unregister(c prometheus.Collector) bool {
	return r.underlying != nil && !r.delayed && r.underlying.Unregister(c)
}

// unregisterAll unregisters everything. Nothing can be published after it.
func (r *registrations) unregisterAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.registered {
		r.underlying.Unregister(c)
	}
	r.registered, r.unpublished, r.closed = nil, nil, true
}

// nameHolder is the ledger that a broadcaster registers first. It reserves the name of the
// broadcaster in the metrics. After the shutdown, the next broadcaster may use that name.
type nameHolder struct {
	*ledger.Ledger

	mu   sync.Mutex
	shut bool
	all  []*registrations // of the broadcaster
}

// maxNames is the maximum number of broadcasters of one name with metrics, which bounds
// those of a process that never shuts its broadcasters down.
const maxNames = 16

// claimName registers a ledger under the name of a broadcaster. If another broadcaster has
// the name and was shut down, its metrics are unregistered. If it still runs, the name
// gets a number.
func claimName(r prometheus.Registerer, name string, l *ledger.Ledger) (*nameHolder, string, error) {
	own := &nameHolder{Ledger: l}
	for n := 1; r != nil; {
		claimed := name
		if n > 1 {
			claimed = fmt.Sprintf("%s-%d", name, n)
		}
		metrics := labelled(r, claimed, "")
		metrics.unpublished = append(metrics.unpublished, own)
		err := metrics.publish()
		var taken prometheus.AlreadyRegisteredError
		switch {
		case err == nil:
			own.add(metrics)
			return own, claimed, nil
		case !errors.As(err, &taken) || n == maxNames:
			return own, name, err
		}
		if before, ok := taken.ExistingCollector.(*nameHolder); !ok || !before.release() {
			n++
		}
	}
	return own, name, nil
}

// add adds registrations of the broadcaster.
func (n *nameHolder) add(r *registrations) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, r)
}

func (n *nameHolder) remove(r *registrations) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = slices.DeleteFunc(n.all, func(other *registrations) bool { return other == r })
}

// shutDown allows another broadcaster to claim the name. Until then, the metrics remain.
func (n *nameHolder) shutDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shut = true
}

// release unregisters the metrics of a broadcaster that was shut down. It returns false if
// it still runs, or was released before.
func (n *nameHolder) release() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.shut || n.all == nil {
		return false
	}
	for _, r := range n.all {
		r.unregisterAll()
	}
	n.all = nil
	return true
}
