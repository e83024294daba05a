package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/seeds"
	"github.com/eventd/eventd/test/stored"
)

// With any faults of the apiserver, the ledger adds up at every quiet moment and after the
// shutdown, and the stored counts are exact.
//
//	go test ./pkg/pipeline -run WholePipeline -seed=42
//
// The seed determines the faults, but not the order of goroutines.
func TestWholePipelineKeepsItsAccounts(t *testing.T) {
	for seed := range seeds.Of(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.run()
				if m.calm {
					m.checkBudgets()
				}
				m.shutdown()
				m.check()
				if t.Failed() {
					t.Logf("%+v", m.scenario)
				}
			})
		})
	}
}

// scenario is what a seed draws.
type scenario struct {
	writers   int // independent pipelines with one server
	reporters int // clients that count by themselves
	steps     int
	tracked   bool // occurrences have Settled
	deferring bool // and Deferred
	calm      bool // no faults, and default cache sizes
	expiry    bool
	patience  time.Duration // timeout of the shutdown
	faults    faults
	options   Options
}

// enough is the time in which everything can be written, one request at a time.
const enough = 24 * time.Hour

// mayTimeOut reports whether occurrences may be dropped for lack of time.
func (s *scenario) mayTimeOut() bool {
	return s.patience < enough || s.options.Sink.RetryFor < enough
}

// mayEvict reports whether a series may be evicted while it is in doubt.
func (s *scenario) mayEvict() bool {
	return s.options.Sink.MaxPendingSeries < sink.DefaultOptions().MaxPendingSeries
}

func drawScenario(rng *rand.Rand) scenario {
	s := scenario{
		writers: 1 + rng.IntN(2), steps: 20 + rng.IntN(150),
		tracked: rng.IntN(2) == 0, expiry: rng.IntN(4) == 0,
		patience: enough, options: drawOptions(rng),
	}
	if rng.IntN(3) == 0 {
		s.patience = time.Duration(rng.Int64N(int64(5 * time.Second)))
	}
	if !s.tracked {
		s.reporters = rng.IntN(5)
	}
	if rng.IntN(4) > 0 {
		s.faults = faults{lost: 0.3 * rng.Float64(), busy: 0.3 * rng.Float64()}
		s.faults.slow = time.Duration(rng.Int64N(int64(12 * time.Second))) // a request may take 10
	}
	if rng.IntN(5) == 0 {
		s.faults.refused = 0.1 * rng.Float64()
	}
	s.deferring = s.tracked && rng.IntN(2) == 0
	if rng.IntN(6) == 0 {
		s.calmDown()
	}
	return s
}

// calmDown makes writes depend on budgets only.
func (s *scenario) calmDown() {
	s.calm, s.writers, s.expiry, s.faults = true, 1, false, faults{}
	c, defaults := &s.options.Correlator, DefaultOptions().Correlator
	c.CacheSize, c.MaxSeries = defaults.CacheSize, defaults.MaxSeries
	c.Burst, c.QPS = min(c.Burst, 5), min(c.QPS, defaults.QPS)
}

// drawOptions draws small limits, so that they are often reached.
func drawOptions(rng *rand.Rand) Options {
	o := DefaultOptions()
	c := &o.Correlator
	c.CacheSize, c.MaxSeries = 1+rng.IntN(4), 1+rng.IntN(3)
	c.Burst, c.QPS = 1+rng.IntN(25), []float64{1. / 300, 1. / 10, 10, math.Inf(1)}[rng.IntN(4)]
	c.MaxMessages = 2 + rng.IntN(9)
	c.Interval = time.Duration(1+rng.IntN(600)) * time.Second
	o.Sink.Concurrency, o.Sink.MaxIdleSeries = 1+rng.IntN(8), 1+rng.IntN(4)
	o.Sink.RetryFor = enough
	if rng.IntN(5) == 0 {
		o.Sink.RetryFor = time.Duration(1 + rng.Int64N(int64(time.Minute)))
	}
	if rng.IntN(4) == 0 {
		o.QueueCapacity = 1 + rng.IntN(4)
	}
	if rng.IntN(4) == 0 {
		o.Sink.MaxPendingSeries = 1 + rng.IntN(4)
	}
	return o
}

// model runs a scenario.
type model struct {
	t *testing.T
	scenario
	rng       *rand.Rand
	server    *memoryServer
	pipelines []*Pipeline
	trails    []*modelTrail // by pipeline
	clients   []*modelClient
	recorded  []int64 // by pipeline
	began     time.Time

	mu sync.Mutex
	// Of tracked occurrences: the written weight by Event name, and the number of
	// callbacks.
	written map[string]int64
	reports map[*occurrence.Occurrence]int
}

// modelClient counts by itself what happens to one object.
type modelClient struct {
	name  string
	event *corev1.Event
	api   occurrence.API
	total int64
	seen  []int64 // the total that it reported to each pipeline
}

func newModel(t *testing.T, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{t: t, rng: rng, scenario: drawScenario(rng), written: map[string]int64{}, reports: map[*occurrence.Occurrence]int{}, began: time.Now()}
	m.server = newMemoryServer(seed, m.faults)
	m.recorded = make([]int64, m.writers)
	for range m.writers {
		trail := newModelTrail(t)
		o := m.options
		o.Trail = trail
		m.trails = append(m.trails, trail)
		m.pipelines = append(m.pipelines, startPipeline(t, o, m.server).Pipeline)
	}
	for i := range m.reporters {
		c := &modelClient{name: fmt.Sprint("web.", i), seen: make([]int64, len(m.pipelines))}
		c.event, c.api = modelEvent(rng)
		m.clients = append(m.clients, c)
	}
	return m
}

func (m *model) run() {
	for range m.steps {
		i := m.rng.IntN(len(m.pipelines))
		switch n := m.rng.IntN(100); {
		case n < 55:
			event, api := modelEvent(m.rng)
			m.record(i, &occurrence.Occurrence{Event: event, API: api, Weight: 1 + m.rng.Int64N(3)})
		case n < 65 && len(m.clients) > 0:
			m.report(i, m.clients[m.rng.IntN(len(m.clients))])
		case n < 67 && m.expiry:
			m.server.expire(m.rng)
		case n < 72:
			synctest.Wait()
			m.checkQuiet()
		default:
			time.Sleep(time.Duration(math.Pow(10, 3+9*m.rng.Float64()))) // up to 17 minutes
		}
	}
}

func (m *model) record(pipeline int, o *occurrence.Occurrence) {
	m.recorded[pipeline] += o.Weight
	m.trails[pipeline].recorded[o.Event.InvolvedObject.Name] += o.Weight
	if m.tracked {
		m.called(o, 0)
		o.Settled = func(s occurrence.Settlement) {
			m.called(o, 1)
			if s.Counted() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.written[s.Object.Name] += o.Weight
			}
		}
	}
	if m.deferring {
		o.Deferred = func() { m.called(o, 1) }
	}
	m.pipelines[pipeline].Record(o)
}

// called counts callbacks of a tracked occurrence.
func (m *model) called(o *occurrence.Occurrence, times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports[o] += times
}

// report reports a higher total of a client, or the same one.
func (m *model) report(pipeline int, c *modelClient) {
	if c.total == 0 || m.rng.IntN(4) > 0 {
		c.total += 1 + m.rng.Int64N(3)
	}
	weight := c.total - c.seen[pipeline]
	if weight == 0 {
		weight = c.total // posted again after an eviction in the intake
	}
	c.seen[pipeline] = c.total
	m.record(pipeline, &occurrence.Occurrence{Event: c.event, API: c.api, Weight: weight, Client: c.name, Total: c.total})
}

// checkQuiet checks the equation of the ledger while nothing is in motion.
func (m *model) checkQuiet() {
	m.t.Helper()
	for i, p := range m.pipelines {
		totals, pending := p.Totals(), p.writer.sink.Pending()
		if totals.Recorded != m.recorded[i] {
			m.t.Errorf("recorded %d, the ledger has %d", m.recorded[i], totals.Recorded)
		}
		if totals.Pending() != pending.Occurrences {
			m.t.Errorf("recorded %d, settled %d, pending %d", totals.Recorded, totals.Settled(), pending.Occurrences)
		}
		m.trails[i].check(m.t, totals)
	}
}

// checkBudgets checks that no subject had more writes than tokens. It is for calm
// scenarios, before the shutdown.
func (m *model) checkBudgets() {
	m.t.Helper()
	synctest.Wait()
	c := m.options.Correlator
	most := float64(c.Burst) + c.QPS*time.Since(m.began).Seconds()
	for subject, n := range m.server.writesBySubject() {
		if float64(n) > most+1e-6 {
			m.t.Errorf("%d writes of %s, at most %f are allowed", n, subject, most)
		}
	}
}

// shutdown shuts all pipelines down, and waits for delayed requests.
func (m *model) shutdown() {
	for _, p := range m.pipelines {
		ctx, cancel := context.WithTimeout(m.t.Context(), m.patience)
		err := p.Shutdown(ctx)
		cancel()
		var undelivered *UndeliveredError
		switch {
		case err != nil && m.patience == enough:
			m.t.Errorf("not enough time: %v", err)
		case errors.As(err, &undelivered) && undelivered.Occurrences == 0:
			m.t.Errorf("the error reports no occurrence: %v", err)
		}
	}
	m.server.late.Wait()
}

// check checks the ledgers and the stored counts.
func (m *model) check() {
	var written, uncertain int64
	for i, p := range m.pipelines {
		totals := p.Totals()
		written += totals.Written()
		uncertain += totals.Outcomes[occurrence.Uncertain]
		if pending := p.writer.sink.Pending(); totals.Recorded != m.recorded[i] || totals.Pending() != 0 || pending != (sink.Pending{}) {
			m.t.Errorf("recorded %d, ledger %+v, pending %+v", m.recorded[i], totals, pending)
		}
		if n := totals.Dropped[occurrence.Shutdown] + totals.Dropped[occurrence.RetriesExhausted]; n > 0 && !m.mayTimeOut() {
			m.t.Errorf("%d are dropped, with enough time: %+v", n, totals)
		}
		m.trails[i].check(m.t, totals)
	}
	if uncertain > 0 && !m.mayTimeOut() && !m.mayEvict() && m.faults.refused == 0 {
		m.t.Errorf("%d are uncertain, though nothing was dropped", uncertain)
	}
	m.checkStored(written, uncertain)
}

// checkStored compares the stored counts with the ledgers. A write whose response was lost,
// on an Event that then expired, may be counted again on the next one.
func (m *model) checkStored(written, uncertain int64) {
	counts := stored.Tally(m.server.all(), func(e *corev1.Event) string { return e.Name })
	slack, expired := uncertain, len(m.server.gone)
	if expired > 0 {
		slack += m.server.inDoubt
	}
	if sum := counts.Sum(); sum < written || sum > written+slack {
		m.t.Errorf("%d are stored, %d written, %d uncertain, and %d Events have expired", sum, written, uncertain, expired)
	}
	if m.tracked && !m.deferring {
		m.checkEach(counts, slack)
	}
	for o, times := range m.reports {
		if times != 1 {
			m.t.Errorf("%q had %d callbacks", o.Event.Message, times)
		}
	}
}

// checkEach compares the stored count of each Event with what was reported as written.
func (m *model) checkEach(counts stored.Counts[string], slack int64) {
	for name, n := range counts {
		if got := m.written[name]; n < got || n > got+slack {
			m.t.Errorf("%d are stored in %s, %d written, up to %d more may be", n, name, got, slack)
		}
	}
	for name, n := range m.written {
		if _, ok := counts[name]; !ok {
			m.t.Errorf("%d are written in %s, which does not exist", n, name)
		}
	}
}
