package observer

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	m := &Metrics{
		versions:   counter("versions_total", "Versions of Events observed by the shared watch."),
		rereads:    counter("rereads_total", "Watches of single readers, for versions that the buffer does not have."),
		lists:      counter("lists_total", "Lists of all stored Events, by single readers."),
		gaps:       counter("gaps_total", "Gaps: a reader has missed versions, since the apiserver no longer had them. The latest version of each stored Event followed."),
		restores:   counter("restores_total", "Restores of etcd from a backup. Everything stored was delivered again."),
		lastChange: prometheus.NewGauge(gauge("last_change_timestamp_seconds", "When the shared watch last observed a change, in seconds since 1970.")),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_observer_watch_restarts_total",
			Help: "Ends of the shared watch, by reason: ended (normal), expired (its history was compacted), forbidden, failed.",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_observer_failures_total",
			Help: "Failures, by request: check (of the current resourceVersion), watch (the shared one), reread (a watch of a reader), list, buffer (a block could not be encoded or decoded).",
		}, []string{"request"}),
	}
	for _, reason := range []string{reasonEnded, reasonExpired, reasonForbidden, reasonFailed} {
		m.restarts.WithLabelValues(reason)
	}
	for _, request := range []string{callCheck, callWatch, callReread, callList, callBuffer} {
		m.failures.WithLabelValues(request)
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.versions, m.lastChange, m.restarts, m.failures, m.rereads, m.lists, m.gaps, m.restores,
		prometheus.NewGaugeFunc(gauge("buffer_bytes", "Size of the buffer of versions in memory."), m.of(func(o *Observer) float64 {
			o.log.mu.Lock()
			defer o.log.mu.Unlock()
			return float64(o.log.buffer.bytes())
		})),
		prometheus.NewGaugeFunc(gauge("buffer_capacity_bytes", "Limit of the buffer of versions. Its oldest versions are removed above that."), m.of(func(o *Observer) float64 {
			return float64(o.log.maxBytes)
		})),
		prometheus.NewGaugeFunc(gauge("oldest_unread_seconds", "Age of the oldest version that a reader has not read, since it was observed."), m.of(func(o *Observer) float64 {
			return o.oldestUnread().Seconds()
		})),
		prometheus.NewGaugeFunc(gauge("connected", "1 while the shared watch is open."), m.of(func(o *Observer) float64 {
			if o.Status().Connected {
				return 1
			}
			return 0
		})),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
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

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "eventd_observer_" + name, Help: help})
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Name: "eventd_observer_" + name, Help: help}
}
