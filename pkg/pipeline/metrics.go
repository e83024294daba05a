package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/ledger"
)

// registrations is a prometheus.Registerer that remembers what was registered
// through it, so that all of it can be taken back. Without an underlying
// registerer it does nothing.
//
// Those of a broadcaster wait until they are published: a Registerer is code of
// others, which may fail and may never return. That costs the metrics, and no
// Events, so nobody else is told of it.
type registrations struct {
	underlying prometheus.Registerer
	waits      bool

	mu         sync.Mutex
	waiting    []prometheus.Collector
	registered []prometheus.Collector
	takenBack  bool
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
	return &registrations{underlying: prometheus.WrapRegistererWith(labels, r), waits: true}
}

// Register implements prometheus.Registerer.
func (r *registrations) Register(c prometheus.Collector) error {
	if r.underlying == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits {
		r.waiting = append(r.waiting, c)
		return nil
	}
	if err := register(r.underlying, c); err != nil {
		return err
	}
	r.registered = append(r.registered, c)
	return nil
}

// publish registers what waits for it. The error is the first one; what can be
// registered is.
func (r *registrations) publish() (first error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.waiting {
		if r.takenBack {
			break
		}
		if err := register(r.underlying, c); err == nil {
			r.registered = append(r.registered, c)
		} else if first == nil {
			first = err
		}
	}
	r.waiting = nil
	return first
}

// register makes an error of a panic.
func register(r prometheus.Registerer, c prometheus.Collector) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the registerer panicked: %v", p)
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

// Unregister implements prometheus.Registerer. What waits to be published is taken
// back with all else.
func (r *registrations) Unregister(c prometheus.Collector) bool {
	return r.underlying != nil && !r.waits && r.underlying.Unregister(c)
}

// takeBack unregisters everything.
func (r *registrations) takeBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.registered {
		r.underlying.Unregister(c)
	}
	r.registered, r.waiting, r.takenBack = nil, nil, true
}

// nameplate is the ledger that a broadcaster registers first. It holds the name of
// the broadcaster in the metrics, until another one needs it after the shutdown.
type nameplate struct {
	*ledger.Ledger

	mu   sync.Mutex
	shut bool
	all  []*registrations // of the broadcaster
}

// maxNames bounds the broadcasters of one name, so that the metrics of a process
// that makes more and more of them without shutting them down are bounded.
const maxNames = 16

// claimName registers a ledger under the name of a broadcaster. If that is taken by
// another one that has been shut down, its metrics are taken back; if not, the name
// gets a number.
func claimName(r prometheus.Registerer, name string, l *ledger.Ledger) (*nameplate, string, error) {
	own := &nameplate{Ledger: l}
	for n := 1; r != nil; {
		claimed := name
		if n > 1 {
			claimed = fmt.Sprintf("%s-%d", name, n)
		}
		metrics := labelled(r, claimed, "")
		metrics.waiting = append(metrics.waiting, own)
		err := metrics.publish()
		var taken prometheus.AlreadyRegisteredError
		switch {
		case err == nil:
			own.add(metrics)
			return own, claimed, nil
		case !errors.As(err, &taken) || n == maxNames:
			return own, name, err
		}
		if before, ok := taken.ExistingCollector.(*nameplate); !ok || !before.makeWay() {
			n++
		}
	}
	return own, name, nil
}

// add takes registrations of the broadcaster, and remove forgets them.
func (n *nameplate) add(r *registrations) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, r)
}

func (n *nameplate) remove(r *registrations) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = slices.DeleteFunc(n.all, func(other *registrations) bool { return other == r })
}

// shutDown says that the broadcaster needs its name no more. What has become of
// its occurrences can still be read.
func (n *nameplate) shutDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shut = true
}

// makeWay takes back the metrics of a broadcaster that was shut down, once.
func (n *nameplate) makeWay() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.shut || n.all == nil {
		return false
	}
	for _, r := range n.all {
		r.takeBack()
	}
	n.all = nil
	return true
}
