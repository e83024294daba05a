package intake

import (
	"errors"
	"fmt"
)

// errNameKnown says that a posted name has a view already.
var errNameKnown = errors.New("name is known")

// Intake turns requests into occurrences and what becomes of these into
// answers. It is safe for use by many goroutines, starts none and needs no
// stop; NewHandler puts it behind HTTP.
type Intake struct {
	options Options
	names   *names
	metrics *metrics
}

// New returns an intake with no views. It fails if the options are not valid or
// a metric cannot be registered.
func New(options Options) (*Intake, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	i := &Intake{options: options, names: newNames(options.MaxNames, options.MaxViewBytes)}
	var err error
	if i.metrics, err = newMetrics(i, options.Registerer); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	return i, nil
}
