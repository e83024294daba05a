package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/eventd/eventd/internal/violations"
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
	var v violations.List
	names := make(map[string]bool)
	for i, c := range o.Components {
		field := fmt.Sprintf("Components[%d]", i)
		v.AddIf(c.Name == "", "%s.Name must not be empty", field)
		v.AddIf(c.Name != "" && names[c.Name], "%s.Name must be unique, got %q again", field, c.Name)
		names[c.Name] = true
		v.AddIf(c.Run == nil, "%s.Run of %q must be set", field, c.Name)
		v.AddIf(c.Drain != nil && !c.NeedsLeadership, "%s.Drain of %q must not be set without NeedsLeadership", field, c.Name)
	}
	v.AddIf(o.StopGracePeriod <= 0, "StopGracePeriod must be greater than 0, got %s", o.StopGracePeriod)
	v.AddIf(o.DrainGracePeriod <= 0, "DrainGracePeriod must be greater than 0, got %s", o.DrainGracePeriod)
	return v.Err()
}
