package observer

import (
	"github.com/eventd/eventd/internal/violations"
)

const (
	// DefaultMaxBytes is the default of Options.MaxBytes: more than 200,000 versions such as kubelets
	// write.
	DefaultMaxBytes = 16 << 20
	// MinMaxBytes is the lower bound of Options.MaxBytes: twice the part that is never removed.
	MinMaxBytes = 8 << 20
)

// Options of an Observer.
type Options struct {
	// Source reads from the apiserver. Required. NewSource makes one.
	Source Source
	// Start is where the shared watch begins, if the apiserver still has it: usually the lowest
	// cursor of the receivers in the highest epoch, so that none of them needs a watch of its own.
	// If it is zero, or too old, the watch begins now. Readers whose cursors are older than that
	// catch up by themselves. Its Epoch must be the highest one that any receiver has stored.
	Start Cursor
	// MaxBytes limits the buffer of versions that some reader has not read, in bytes of memory. 0 is
	// DefaultMaxBytes. Not in it are, for each reader, a block that is decoded (about 1 MiB) and,
	// while it reads what has left the buffer, as much or a page of a list.
	MaxBytes int64
	// Metrics, if not nil, counts, and reports the gauges of this Observer instead of a former one's.
	Metrics *Metrics
}

// validate returns what is wrong with the options, after defaults.
func (o *Options) validate() error {
	var v violations.List
	v.AddIf(o.Source == nil, "the source is missing")
	v.AddIf(o.MaxBytes < MinMaxBytes, "the buffer must have at least %d bytes, not %d", int64(MinMaxBytes), o.MaxBytes)
	rv := o.Start.ResourceVersion
	v.AddIf(rv != "" && !valid(rv), "%q is not a resourceVersion to start after", rv)
	return v.Err()
}
