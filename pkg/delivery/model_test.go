package delivery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/seeds"
)

// Over kills, lost leases, handovers and reloads, and with any faults of the receivers and of the
// apiserver, every final state is delivered, first deliveries of an Event ascend, repetitions are
// bounded, and the accounts add up at every quiet moment. The final states of throttled Events are
// delivered by the leader that has observed them.
//
//	go test ./pkg/delivery -run EveryFinalState -seed=42
//
// The seed determines the faults, but not the order of goroutines.
func TestEveryFinalStateIsDelivered(t *testing.T) {
	for seed := range seeds.Of(250) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.run()
				m.settle()
				m.check()
			})
		})
	}
}

type model struct {
	t       *testing.T
	rng     *rand.Rand
	history *history
	store   *memoryConfigMap
	targets map[string]*target
	routes  *modelRoutes
	config  v1alpha1.EventdConfiguration
	limit   int // of the readers' buffers
	// observes: the history is read by a real observer, from a faulty apiserver.
	observes bool
	// plain: the store works, and versions do not collapse, so that repetitions are bounded.
	plain   bool
	hanging bool    // receivers may hang
	faults  float64 // of the store
	healed  atomic.Bool
	allowed map[string]int
	written []*corev1.Event
	// settled is how many were written before the last leader, and all faults over.
	settled int
	leader  *modelProcess
	all     []*modelProcess
}

func newModel(t *testing.T, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{
		t: t, rng: rng, history: newHistory(), store: &memoryConfigMap{begun: make(map[string]entry)},
		targets: make(map[string]*target), routes: &modelRoutes{filtered: make(map[string]bool), interval: time.Duration(math.Pow(10, 9+2.7*rng.Float64()))}, // up to 8 min
		plain: rng.IntN(3) == 0, hanging: rng.IntN(2) == 0, limit: math.MaxInt, allowed: make(map[string]int),
	}
	if !m.plain {
		m.faults, m.limit, m.observes = 0.3*rng.Float64(), 1+rng.IntN(200), rng.IntN(2) == 0
	}
	faults := []behaviour{fails, throttles, losesAnswer, isSlow}
	if m.hanging {
		faults = append(faults, hangs)
	}
	for i := range 1 + rng.IntN(3) {
		r := v1alpha1.Receiver{Name: fmt.Sprint("receiver-", i), BatchSize: new(1 + rng.Int32N(40))}
		if i > 0 && rng.IntN(2) == 0 {
			r.From = v1alpha1.FromOldest
		}
		m.config.Receivers = append(m.config.Receivers, r)
		g := newTarget(t, seed+uint64(i)<<32)
		g.partial = rng.IntN(2) == 0
		g.filtered = func(id string) bool {
			uid, _, _ := strings.Cut(id, "/")
			return m.routes.hasFiltered(r.Name, id) || m.history.hasCollapsed(id) || isThrottled(types.UID(uid))
		}
		if rng.IntN(3) > 0 {
			g.odds, g.may = 0.4*rng.Float64(), faults
		}
		m.targets[r.Name] = g
	}
	m.write()
	m.elect()
	return m
}

// write stores versions of some Events.
func (m *model) write() {
	for range 1 + m.rng.IntN(60) {
		e := m.history.write(fmt.Sprint("event-", m.rng.IntN(20)))
		m.written = append(m.written, e)
		for _, g := range m.targets {
			if m.rng.IntN(100) == 0 {
				g.mu.Lock()
				g.poison[idOf(e)] = true
				g.mu.Unlock()
			}
		}
	}
}

func idOf(e *corev1.Event) string { return observer.Version{Event: e}.ID() }

var errHandover = errors.New("handover")

func (m *model) run() {
	for range 10 + m.rng.IntN(40) {
		switch n := m.rng.IntN(100); {
		case n < 45:
			m.write()
		case n < 49:
			m.replace(func(p *modelProcess) { p.dead.Store(true); p.leads.Store(false) }, errors.New("killed"), m.rng.IntN(2) == 0)
		case n < 53:
			m.replace(func(p *modelProcess) { p.leads.Store(false) }, election.ErrLeaseLost, m.rng.IntN(2) == 0)
		case n < 57:
			m.replace(func(*modelProcess) {}, errHandover, false)
		case n < 64:
			m.reload()
		case n < 66 && !m.plain:
			m.history.compact()
		case n < 75:
			synctest.Wait()
			m.checkAccounts()
		default:
			time.Sleep(time.Duration(math.Pow(10, 6+5*m.rng.Float64()))) // up to 100 s
		}
	}
}

// replace ends the term of the leader, and starts another one, which may overlap.
func (m *model) replace(before func(*modelProcess), cause error, overlapping bool) {
	p := m.leader
	synctest.Wait() // so that nothing is between the check of leadership and the call
	before(p)
	for name, g := range m.targets {
		m.allowed[name] += m.batchSize(name) // in flight
		if !errors.Is(cause, errHandover) {  // what was delivered since the last write of the cursors
			m.allowed[name] += g.since(time.Now().Add(-cursorInterval))
		}
	}
	p.cancel(cause)
	if !overlapping {
		<-p.done
		p.leads.Store(false)
	}
	if m.rng.IntN(4) == 0 {
		m.write()
	}
	if !overlapping && !p.dead.Load() && m.rng.IntN(2) == 0 {
		p.run(m) // the same process is elected again
		return
	}
	m.elect()
}

func (m *model) batchSize(receiver string) int {
	i := slices.IndexFunc(m.config.Receivers, func(r v1alpha1.Receiver) bool { return r.Name == receiver })
	return int(*m.config.Receivers[i].BatchSize)
}

// reload changes a receiver, or the routes.
func (m *model) reload() {
	m.config.Receivers = slices.Clone(m.config.Receivers)
	r := &m.config.Receivers[m.rng.IntN(len(m.config.Receivers))]
	switch m.rng.IntN(3) {
	case 0:
		r.Paused = !r.Paused
	case 1:
		r.BatchSize = new(1 + m.rng.Int32N(40))
	default:
		odd := !m.routes.odd.Load()
		m.routes.odd.Store(odd)
		m.config.Routes = []v1alpha1.Route{{Name: fmt.Sprint("odd-is-", odd)}}
	}
	m.apply(m.leader)
}

func (m *model) apply(p *modelProcess) {
	config := m.config
	p.Apply(&config, m.routes.view)
}

// modelProcess is one process, for one or several terms.
type modelProcess struct {
	*Delivery
	leads, dead atomic.Bool
	cancel      context.CancelCauseFunc
	done        chan struct{}
	// By receiver: calls, acknowledged records, and of these summaries, and the versions of those.
	running, acked, summaries, summarized map[string]*atomic.Int64
	mu                                    sync.Mutex
	readers                               []Reader
}

// elect starts a process that leads.
func (m *model) elect() {
	p := &modelProcess{
		running: make(map[string]*atomic.Int64), acked: make(map[string]*atomic.Int64),
		summaries: make(map[string]*atomic.Int64), summarized: make(map[string]*atomic.Int64),
	}
	rng := rand.New(rand.NewPCG(m.rng.Uint64(), 2))
	client := &configMapClient{of: m.store, before: m.storeFaults(p, rng), after: m.storeFaults(p, rng)}
	options := DefaultOptions()
	options.Cluster, options.Client, options.Leading = "test", client, p.leads.Load
	served := m.serve(p)
	made := func(r Reader) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.readers = append(p.readers, r)
	}
	options.NewSource = func(start observer.Start) (Source, error) {
		if !m.observes {
			return recorded{&memorySource{history: m.history, limit: m.limit}, made}, nil
		}
		o, err := observer.New(observer.Options{Source: served, Start: start.Cursor})
		return recorded{NewSource(o), made}, err
	}
	options.NewReceiver = func(r v1alpha1.Receiver) (receiver.Receiver, error) {
		return &sender{
			target: m.targets[r.Name], leads: &p.leads, dead: &p.dead, running: p.running[r.Name], sent: make(map[string]bool),
			acked: p.acked[r.Name], summaries: p.summaries[r.Name], summarized: p.summarized[r.Name],
		}, nil
	}
	for name := range m.targets {
		p.running[name], p.acked[name] = new(atomic.Int64), new(atomic.Int64)
		p.summaries[name], p.summarized[name] = new(atomic.Int64), new(atomic.Int64)
	}
	var err error
	if p.Delivery, err = New(options); err != nil {
		m.t.Fatal(err)
	}
	m.all = append(m.all, p)
	m.apply(p)
	p.run(m)
}

// serve returns the apiserver of a process.
func (m *model) serve(p *modelProcess) servedHistory {
	rng := rand.New(rand.NewPCG(m.rng.Uint64(), 3))
	var mu sync.Mutex
	return servedHistory{history: m.history, fault: m.storeFaults(p, rand.New(rand.NewPCG(m.rng.Uint64(), 4))), ends: func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if m.healed.Load() || rng.IntN(2) == 0 {
			return 0
		}
		return time.Duration(rng.Int64N(int64(10 * time.Second)))
	}}
}

func (p *modelProcess) run(m *model) {
	m.leader = p
	ctx, cancel := context.WithCancelCause(quiet(m.t))
	p.cancel, p.done = cancel, make(chan struct{})
	p.leads.Store(true)
	done := p.done
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			m.t.Error(err)
		}
	}()
}

// storeFaults returns the faults of a process before or after a call to the store.
func (m *model) storeFaults(p *modelProcess, rng *rand.Rand) func(context.Context) error {
	var mu sync.Mutex
	return func(ctx context.Context) error {
		mu.Lock()
		fault, kind, d := rng.Float64() < m.faults, rng.IntN(3), time.Duration(rng.Int64N(int64(10*time.Second)))
		mu.Unlock()
		switch {
		case p.dead.Load():
			return errors.New("the process was killed")
		case !fault || m.healed.Load():
			return nil
		case kind == 0:
			return errors.New("500")
		case kind == 1:
			time.Sleep(d) // ignores ctx
			return nil
		default:
			if sleep.For(ctx, d) == nil {
				return nil
			}
			return ctx.Err()
		}
	}
}
