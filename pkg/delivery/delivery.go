package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/observer"
)

// Delivery delivers Events while its process leads. Make it with New. Its methods may be called by
// many goroutines, but Run by one at a time.
type Delivery struct {
	options Options
	store   *store
	metrics *cursorMetrics
	changed chan struct{} // has an element after a change of the configuration

	configuration atomic.Pointer[configuration]
	cursors       atomic.Pointer[cursors] // of the term; nil on a standby

	mu       sync.Mutex
	accounts map[string]*account // of the receivers of the configuration
	// destinations have an element for each receiver that had one. A former worker may have
	// abandoned it.
	destinations map[string]*destination
}

// configuration is what Apply was called with.
type configuration struct {
	receivers []v1alpha1.Receiver
	routes    []v1alpha1.Route
	routing   Routing
}

// New returns a Delivery without receivers, and registers its metrics. Its error names the options
// that are wrong.
func New(o Options) (*Delivery, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &Delivery{
		options: o, store: newStore(o.Client, o.Namespace, o.ConfigMap),
		changed:  make(chan struct{}, 1),
		accounts: make(map[string]*account), destinations: make(map[string]*destination),
	}
	d.configuration.Store(&configuration{})
	var err error
	d.metrics, err = newMetrics(d, o.Registerer)
	return d, err
}

// Apply replaces the configuration, which must be valid and have its defaults, and which nobody
// changes afterwards. It does not wait. Run restarts receivers that have changed, and stops those
// that were removed; their cursors are kept for 24 hours. It restarts those too whose last attempt
// has failed, since another route may drop what their destination fails for. If the routes have
// changed, all groups of throttled Events end; other changes leave them, but for a restart.
func (d *Delivery) Apply(config *v1alpha1.EventdConfiguration, routing Routing) {
	var routes []string
	for _, r := range config.Routes {
		routes = append(routes, r.Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	former := d.accounts
	d.accounts = make(map[string]*account, len(config.Receivers))
	for _, r := range config.Receivers {
		if a := former[r.Name]; a != nil {
			d.accounts[r.Name] = a
			a.addRoutes(routes)
		} else {
			d.accounts[r.Name] = newAccount(r.Name, routes)
		}
	}
	d.configuration.Store(&configuration{receivers: config.Receivers, routes: config.Routes, routing: routing})
	notify.Wake(d.changed)
}

// Run delivers during one term of leadership, until ctx ends. Then it cancels what is in flight,
// stores the cursors, unless the Lease is lost or this process no longer leads, and returns nil
// after at most 3 seconds. It may be called again. Failures of the source, of the apiserver and of
// receivers are logged and retried.
func (d *Delivery) Run(ctx context.Context) error {
	failures := 0
	for d.awaitReceivers(ctx) {
		began := time.Now()
		err := d.runSession(ctx)
		if err == nil {
			continue // the term is over, or there are no more receivers
		}
		if time.Since(began) > 2*maxBackoff {
			failures = 0
		}
		failures++
		delay := sleep.Backoff(minBackoff, maxBackoff, failures)
		klog.FromContext(ctx).Error(bounded(err), "Nothing is delivered until a later attempt succeeds", "retryAfter", delay)
		if sleep.For(ctx, delay) != nil {
			break
		}
	}
	return nil
}

// awaitReceivers waits until the configuration has receivers. It returns false when ctx has ended.
func (d *Delivery) awaitReceivers(ctx context.Context) bool {
	for ctx.Err() == nil {
		if len(d.configuration.Load().receivers) > 0 {
			return true
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
		}
	}
	return false
}

// runSession delivers until ctx ends or there are no receivers, or until the source fails.
func (d *Delivery) runSession(term context.Context) error {
	s := &session{delivery: d, cursors: newCursors(d.store, d.leading, d.metrics), workers: make(map[string]*worker)}
	s.cursors.setReceivers(term, d.configuration.Load().receivers)
	if err := s.cursors.load(term); err != nil {
		if term.Err() != nil {
			return nil
		}
		d.metrics.readsFailed.Inc()
		return fmt.Errorf("reading the cursors: %w", err)
	}
	d.cursors.Store(s.cursors)
	defer d.cursors.Store(nil)
	ctx, cancel := context.WithCancelCause(term)
	var writer sync.WaitGroup
	writer.Go(func() { s.cursors.run(ctx) })
	err := s.run(ctx)
	cancel(err)
	s.stop()
	writer.Wait()
	if !errors.Is(context.Cause(term), election.ErrLeaseLost) && d.leading() {
		s.cursors.writeLast(term)
	}
	return err
}

func (d *Delivery) leading() bool { return d.options.Leading == nil || d.options.Leading() }

// view returns the routing of a receiver, nil if it is no longer configured.
func (c *configuration) view(receiver string) View {
	if !slices.ContainsFunc(c.receivers, func(r v1alpha1.Receiver) bool { return r.Name == receiver }) {
		return nil
	}
	return c.routing(receiver)
}

// account returns the account of a receiver, nil if it is no longer configured.
func (d *Delivery) account(receiver string) *account {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accounts[receiver]
}

// listAccounts returns the accounts by name of the receiver.
func (d *Delivery) listAccounts() []*account {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.accounts), func(a, b *account) int { return cmp.Compare(a.name, b.name) })
}

// destinationOf returns the last destination of a receiver, nil if it has ended.
func (d *Delivery) destinationOf(receiver string) *destination {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.destinations[receiver]
	if last == nil {
		return nil
	}
	select {
	case <-last.ended:
		delete(d.destinations, receiver)
		return nil
	default:
		return last
	}
}

func (d *Delivery) setDestination(receiver string, to *destination) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destinations[receiver] = to
}

// Status is what a receiver does, at one moment.
type Status struct {
	Name  string
	State State
	// Until is the end of StateBackingOff.
	Until time.Time
	// LastError is the last error of an attempt, and FailedAt its time. It is at most about 0.5
	// KiB, may quote the destination, and stays after a success.
	LastError string
	FailedAt  time.Time
	// Cursor is the point up to which everything is settled. It is zero on a standby, and for a
	// receiver that has settled nothing.
	Cursor observer.Cursor
	// Lag is the age of the oldest pending version.
	Lag time.Duration
	Totals
}

// Snapshot returns the status of each receiver of the configuration, by name.
func (d *Delivery) Snapshot() []Status {
	var out []Status
	c := d.cursors.Load()
	for _, a := range d.listAccounts() {
		s := a.status(time.Now())
		if c != nil {
			s.Cursor = c.cursor(a.name)
		}
		out = append(out, s)
	}
	return out
}

func (a *account) status(now time.Time) Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Status{
		Name: a.name, State: a.state, Until: a.until, LastError: a.lastError, FailedAt: a.failedAt,
		Lag: a.lag(now), Totals: a.readTotals(),
	}
}
