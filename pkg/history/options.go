package history

import "fmt"

// MinMaxBytes is the lower bound of Options.MaxBytes.
const MinMaxBytes = 4 << 20

// Options of a History.
type Options struct {
	// MaxBytes limits the memory of the history, in bytes. Required, at least MinMaxBytes. A version
	// takes about 140 bytes.
	MaxBytes int64
	// Metrics, if not nil, counts, and reports the gauges of this History instead of a former one's.
	Metrics *Metrics
}

// validate returns what is wrong with the options.
func (o *Options) validate() error {
	if o.MaxBytes < MinMaxBytes {
		return fmt.Errorf("the history must have at least %d bytes, not %d", int64(MinMaxBytes), o.MaxBytes)
	}
	return nil
}

// sizes are where something ends. Tests make them smaller.
type sizes struct {
	// runVersions and runBytes end a run that is sealed, and tailVersions and tailBytes are what
	// stays in the head behind it, so that followers at the end decode nothing. Bytes are those in
	// memory.
	runVersions, tailVersions int
	runBytes, tailBytes       int64
	// blockVersions is the maximum number of versions in a block: a query decodes whole blocks.
	blockVersions int
}

func defaultSizes(maxBytes int64) sizes {
	return sizes{
		runVersions: 2048, runBytes: min(maxBytes/8, 4<<20),
		tailVersions: 512, tailBytes: min(maxBytes/16, 1<<20),
		blockVersions: 512,
	}
}
