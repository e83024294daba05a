package intake

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Options are what an Intake needs and what it may take. Begin with
// DefaultOptions.
type Options struct {
	// Record takes an occurrence. It must not block. It may settle the
	// occurrence before it returns. Required.
	Record func(*occurrence.Occurrence)
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// MaxBodyBytes limits the body of a request; a longer one is answered 413.
	MaxBodyBytes int64
	// MaxDecodeBytes limits what all bodies that are being decoded, and patches that
	// are being applied, may allocate together, by what each could at most. What
	// cannot begin within a second is answered 429. A single one may always be decoded.
	MaxDecodeBytes int64
	// MaxNames and MaxViewBytes limit of how many posted names the views are
	// kept, and what these take together. At 1 to 2 KiB for a usual Event,
	// the defaults hold 16,384 views in some 32 MiB; the second limit is for
	// clients that post large ones, each of which counts as several names. A
	// tenant that fills them replaces its own.
	MaxNames     int
	MaxViewBytes int64
}

// DefaultOptions returns the options that a daemon starts with; Record has yet
// to be set.
func DefaultOptions() Options {
	return Options{
		MaxBodyBytes:   1 << 20,
		MaxDecodeBytes: 128 << 20,
		MaxNames:       16_384,
		MaxViewBytes:   64 << 20,
	}
}

// Validate says what is wrong with the options, or nil.
func (o *Options) Validate() error {
	var errs []error
	if o.Record == nil {
		errs = append(errs, errors.New("a record function is required"))
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"body bytes", o.MaxBodyBytes},
		{"bytes of decoding", o.MaxDecodeBytes},
		{"names", int64(o.MaxNames)},
		{"view bytes", o.MaxViewBytes},
	} {
		if limit.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than 0, not %d", limit.name, limit.value))
		}
	}
	return errors.Join(errs...)
}
