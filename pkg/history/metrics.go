package history

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
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
	set := instrument.New(r)
	m := &Metrics{
		evicted: set.Counter("eventd_history_evicted_versions_total", "Versions of Events removed from the history, since it was full."),
		skipped: set.Counter("eventd_history_skipped_versions_total", "Versions of Events that the history cannot have, since their resourceVersions are no numbers."),
		decoded: set.Counter("eventd_history_decoded_blocks_total", "Blocks of the history decoded for queries and tails. A block has at most 512 versions."),
	}
	set.GaugeFunc("eventd_history_versions", "Versions of Events in the history.", m.of(func(s Status) float64 { return float64(s.Versions) }))
	set.GaugeFunc("eventd_history_bytes", "Size of the history in memory.", m.of(func(s Status) float64 { return float64(s.Bytes) }))
	set.GaugeFunc("eventd_history_capacity_bytes", "Limit of the history. Its oldest versions are removed above that.",
		m.of(func(s Status) float64 { return float64(s.MaxBytes) }))
	set.GaugeFunc("eventd_history_oldest_timestamp_seconds", "When the oldest version in the history was observed, in seconds since 1970; 0 if there is none.",
		m.of(func(s Status) float64 {
			if s.KnownSince.IsZero() {
				return 0
			}
			return float64(s.KnownSince.UnixMicro()) / 1e6
		}))
	set.GaugeFunc("eventd_history_connected", "1 while the watch that fills the history is open.",
		m.of(func(s Status) float64 { return instrument.Bool(s.Connected) }))
	return m, set.Err()
}

// of reads a gauge of the current History. It is 0 without one.
func (m *Metrics) of(read func(Status) float64) func() float64 {
	return func() float64 {
		if h := m.current.Load(); h != nil {
			return read(h.Status())
		}
		return 0
	}
}
