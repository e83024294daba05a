package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options of a Manager. Begin with DefaultOptions.
type Options struct {
	// Components are started in this order.
	Components []Component
	// Elector decides when this process leads. If nil, it leads from start to stop.
	Elector Elector
	// StopGracePeriod limits the time in which all components that need leadership
	// stop, and after them the time in which the others stop.
	StopGracePeriod time.Duration
	// DrainGracePeriod limits the time in which all components drain.
	DrainGracePeriod time.Duration
}

// Elector takes part in a leader election. *election.Elector is one.
type Elector interface {
	// Run calls lead at each election, until ctx ends or lead fails.
	Run(ctx context.Context, lead func(context.Context) error) error
	// Follow observes who leads without taking part, until ctx ends.
	Follow(ctx context.Context) error
}

// DefaultOptions returns grace periods that, together with the release of the
// Lease, fit into the 30 seconds in which a Pod terminates by default.
func DefaultOptions() Options {
	return Options{StopGracePeriod: 5 * time.Second, DrainGracePeriod: 10 * time.Second}
}

// Validate returns all violations as one error. Each names its field.
func (o *Options) Validate() error {
	errs := []error{validateComponents(o.Components)}
	if o.StopGracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("StopGracePeriod must be greater than 0, got %s", o.StopGracePeriod))
	}
	if o.DrainGracePeriod <= 0 {
		errs = append(errs, fmt.Errorf("DrainGracePeriod must be greater than 0, got %s", o.DrainGracePeriod))
	}
	return errors.Join(errs...)
}

func validateComponents(components []Component) error {
	var errs []error
	names := make(map[string]bool)
	for i, c := range components {
		field := fmt.Sprintf("Components[%d]", i)
		switch {
		case c.Name == "":
			errs = append(errs, fmt.Errorf("%s.Name must not be empty", field))
		case names[c.Name]:
			errs = append(errs, fmt.Errorf("%s.Name must be unique, got %q again", field, c.Name))
		}
		names[c.Name] = true
		if c.Run == nil {
			errs = append(errs, fmt.Errorf("%s.Run of %q must be set", field, c.Name))
		}
		if c.Drain != nil && !c.NeedsLeadership {
			errs = append(errs, fmt.Errorf("%s.Drain of %q must not be set without NeedsLeadership", field, c.Name))
		}
	}
	return errors.Join(errs...)
}
