package trail

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/increase"
)

// DefaultMaxBytes is the default of Options.MaxBytes. It has the steps of 3,000 to 6,000 objects.
const DefaultMaxBytes = 16 << 20

// MinMaxBytes is the lowest Options.MaxBytes.
const MinMaxBytes = 1 << 20

// Options of a Trail. Zero values are the defaults.
type Options struct {
	// MaxBytes limits the memory. One half is for steps, one quarter for the rankings of single
	// namespaces, one eighth for that of all, one sixteenth each for the counts of Events that others
	// have written, and for followers.
	MaxBytes int64
	// Unreported says that nothing is recorded in this process: Observed counts what eventd has written too.
	Unreported bool
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// limits are the parts of Options.MaxBytes.
type limits struct {
	steps    int64 // bytes
	boards   int64 // bytes of those of single namespaces
	lgKeys   int   // of a sketch of objects for all namespaces
	counts   int64 // Events
	followed int64 // bytes of steps for followers
}

func (o *Options) limits() (limits, error) {
	bytes := o.MaxBytes
	if bytes == 0 {
		bytes = DefaultMaxBytes
	}
	if bytes < MinMaxBytes {
		return limits{}, fmt.Errorf("trail options: MaxBytes must be at least %d, not %d", MinMaxBytes, bytes)
	}
	return limits{
		steps:    bytes / 2,
		boards:   bytes / 4,
		lgKeys:   lgKeys(bytes/8, int64(dimensions)-1),
		counts:   bytes / 16 / increase.Bytes,
		followed: bytes / 16,
	}, nil
}
