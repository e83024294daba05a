package history

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics has the metrics of a History, and of those after it. It is safe for concurrent use, and needs
// no shutdown.
type Metrics struct {
	current atomic.Pointer[History] // whose gauges are reported

	evicted prometheus.Counter
	skipped prometheus.Counter
	decoded prometheus.Counter
}

// NewMetrics registers the metrics; a nil registerer leaves them out.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		evicted: counter("evicted_versions_total", "Versions of Events removed from the history, since it was full."),
		skipped: counter("skipped_versions_total", "Versions of Events that the history cannot have, since their resourceVersions are no numbers."),
		decoded: decodedBlocks(),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.evicted, m.skipped, m.decoded,
		m.gauge("versions", "Versions of Events in the history.", func(s Status) float64 { return float64(s.Versions) }),
		m.gauge("bytes", "Size of the history in memory.", func(s Status) float64 { return float64(s.Bytes) }),
		m.gauge("capacity_bytes", "Limit of the history. Its oldest versions are removed above that.", func(s Status) float64 { return float64(s.MaxBytes) }),
		m.gauge("oldest_timestamp_seconds", "When the oldest version in the history was observed, in seconds since 1970; 0 if there is none.", func(s Status) float64 {
			if s.KnownSince.IsZero() {
				return 0
			}
			return float64(s.KnownSince.UnixMicro()) / 1e6
		}),
		m.gauge("connected", "1 while the watch that fills the history is open.", func(s Status) float64 {
			if s.Connected {
				return 1
			}
			return 0
		}),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// gauge reads a gauge of the current History. It is 0 without one.
func (m *Metrics) gauge(name, help string, read func(Status) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "eventd_history_" + name, Help: help}, func() float64 {
		if h := m.current.Load(); h != nil {
			return read(h.Status())
		}
		return 0
	})
}

func decodedBlocks() prometheus.Counter {
	return counter("decoded_blocks_total", "Blocks of the history decoded for queries and tails. A block has at most 512 versions.")
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "eventd_history_" + name, Help: help})
}
