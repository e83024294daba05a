package observer

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

// Why the shared watch has to be opened again. They are metric labels.
const (
	reasonEnded     = "ended"     // its time was over, or it was closed
	reasonExpired   = "expired"   // 410: it begins now
	reasonForbidden = "forbidden" // 401 or 403
	reasonFailed    = "failed"
)

// Metrics has the metrics of an Observer, and of those after it. It is safe for concurrent use, and
// needs no shutdown.
type Metrics struct {
	current atomic.Pointer[Observer] // whose gauges are reported

	versions   prometheus.Counter
	lastChange prometheus.Gauge
	restarts   *prometheus.CounterVec
	failures   *prometheus.CounterVec
	rereads    prometheus.Counter
	lists      prometheus.Counter
	gaps       prometheus.Counter
	restores   prometheus.Counter
}

// NewMetrics registers the metrics; a nil registerer leaves them out.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	set := instrument.New(r)
	m := &Metrics{
		versions:   set.Counter("eventd_observer_versions_total", "Versions of Events observed by the shared watch."),
		lastChange: set.Gauge("eventd_observer_last_change_timestamp_seconds", "When the shared watch last observed a change, in seconds since 1970."),
		restarts: set.CounterVec("eventd_observer_watch_restarts_total",
			"Ends of the shared watch, by reason: ended (normal), expired (its history was compacted), forbidden, failed.", "reason"),
		failures: set.CounterVec("eventd_observer_failures_total",
			"Failures, by request: check (of the current resourceVersion), watch (the shared one), reread (a watch of a reader), list, buffer (a block could not be encoded or decoded).", "request"),
		rereads:  set.Counter("eventd_observer_rereads_total", "Watches of single readers, for versions that the buffer does not have."),
		lists:    set.Counter("eventd_observer_lists_total", "Lists of all stored Events, by single readers."),
		gaps:     set.Counter("eventd_observer_gaps_total", "Gaps: a reader has missed versions, since the apiserver no longer had them. The latest version of each stored Event followed."),
		restores: set.Counter("eventd_observer_restores_total", "Restores of etcd from a backup. Everything stored was delivered again."),
	}
	for _, reason := range []string{reasonEnded, reasonExpired, reasonForbidden, reasonFailed} {
		m.restarts.WithLabelValues(reason)
	}
	for _, request := range []string{callCheck, callWatch, callReread, callList, callBuffer} {
		m.failures.WithLabelValues(request)
	}
	set.GaugeFunc("eventd_observer_buffer_bytes", "Size of the buffer of versions in memory.", m.of(func(o *Observer) float64 {
		o.log.mu.Lock()
		defer o.log.mu.Unlock()
		return float64(o.log.buffer.bytes())
	}))
	set.GaugeFunc("eventd_observer_buffer_capacity_bytes", "Limit of the buffer of versions. Its oldest versions are removed above that.",
		m.of(func(o *Observer) float64 { return float64(o.log.maxBytes) }))
	set.GaugeFunc("eventd_observer_oldest_unread_seconds", "Age of the oldest version that a reader has not read, since it was observed.",
		m.of(func(o *Observer) float64 { return o.oldestUnread().Seconds() }))
	set.GaugeFunc("eventd_observer_connected", "1 while the shared watch is open.",
		m.of(func(o *Observer) float64 { return instrument.Bool(o.Status().Connected) }))
	return m, set.Err()
}

// oldestUnread returns the age of the oldest version that is pending for a reader, 0 if there is none. There is
// a reader for each receiver.
func (o *Observer) oldestUnread() (oldest time.Duration) {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	for r := range o.log.readers {
		oldest = max(oldest, r.statusLocked(o.log).OldestPending)
	}
	return oldest
}

// of reads a gauge of the current Observer. It is 0 without one.
func (m *Metrics) of(read func(*Observer) float64) func() float64 {
	return func() float64 {
		if o := m.current.Load(); o != nil {
			return read(o)
		}
		return 0
	}
}
