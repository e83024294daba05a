package soak

import (
	"context"
	"runtime"
	runtimemetrics "runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
)

// reading is what a pipeline's metrics were at a time.
type reading struct {
	at              time.Time
	written         float64 // requests that wrote something
	series, pending float64 // pending in the sink, and occurrences in any station
	overdue         time.Duration
	heap            uint64 // live, as of the last collection
}

// gauges are read all the time.
type gauges struct {
	registry prometheus.Gatherer
	baseline uint64 // live heap before anything was recorded

	mu       sync.Mutex
	readings []reading
}

// readEvery is short beside everything that is measured with it.
const readEvery = 50 * time.Millisecond

func readGauges(t *testing.T, registry prometheus.Gatherer) (g *gauges, end func()) {
	runtime.GC()
	g = &gauges{registry: registry, baseline: liveHeap()}
	return g, await.Every(readEvery, func(context.Context) { g.read(t) })
}

func (g *gauges) read(t *testing.T) {
	m := metrics.Gather(t, g.registry)
	r := reading{
		at: time.Now(), written: written(m), heap: liveHeap(),
		series: m.Sum("eventd_sink_pending_series"), pending: m.Sum("eventd_occurrences_pending"),
		overdue: time.Duration(m.Sum("eventd_sink_overdue_seconds") * float64(time.Second)),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readings = append(g.readings, r)
}

func liveHeap() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}

// last is the newest reading.
func (g *gauges) last() reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.readings) == 0 {
		return reading{}
	}
	return g.readings[len(g.readings)-1]
}

// peak is the greatest value of each in any reading.
func (g *gauges) peak() (peak reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.readings {
		peak.series = max(peak.series, r.series)
		peak.pending = max(peak.pending, r.pending)
		peak.heap = max(peak.heap, r.heap)
	}
	return peak
}

// drain is from the first write after a reading until nothing is left of what had
// fallen due by then. It is false while that is not over.
func (g *gauges) drain(since reading) (from, to reading, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.readings {
		switch {
		case !r.at.After(since.at) || r.written == since.written:
		case from.at.IsZero():
			from = r
		case r.at.Add(-r.overdue).After(from.at):
			return from, r, true
		}
	}
	return from, to, false
}

// rate is the number of writes per second between two readings.
func rate(from, to reading) float64 {
	return (to.written - from.written) / to.at.Sub(from.at).Seconds()
}
