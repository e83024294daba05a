package intake

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/eventd/eventd/internal/shares"
)

// errNameKnown says that a posted name has a view already.
var errNameKnown = errors.New("name is known")

// Intake turns requests into occurrences and what becomes of these into
// answers. It is safe for use by many goroutines, starts none and needs no
// stop; NewHandler puts it behind HTTP.
type Intake struct {
	options  Options
	names    *names
	decoding *decodeBudget
	metrics  *metrics
	// unwritten is what answers take that are being written.
	unwritten *shares.Shares
	working   atomic.Int64
}

// Working returns how many requests about Events have been received as a whole and
// have no answer yet. What else may be in flight is a client's affair: a body that
// it has yet to send, or an answer that it has yet to read.
func (i *Intake) Working() int { return int(i.working.Load()) }

// New returns an intake with no views. It fails if the options are not valid or
// a metric cannot be registered.
func New(options Options) (*Intake, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	i := &Intake{
		options:   options,
		names:     newNames(options.MaxNames, options.MaxViewBytes),
		unwritten: shares.New(maxUnwrittenBytes),
		decoding:  newDecodeBudget(options.MaxDecodeBytes),
	}
	var err error
	if i.metrics, err = newMetrics(i, options.Registerer); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	return i, nil
}
