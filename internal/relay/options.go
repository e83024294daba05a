package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/eventd/eventd/pkg/intake"
)

const (
	// DefaultLeaderWait is longer than a handover. Without a leader, clients are answered
	// within a second.
	DefaultLeaderWait = 900 * time.Millisecond
	// DefaultUnreachableAfter is half of the usual duration of a Lease.
	DefaultUnreachableAfter = 15 * time.Second / 2
)

// Options of a Relay. Begin with DefaultOptions.
type Options struct {
	// Identity is the name of this replica for others, optional.
	Identity string
	// Gate admits requests to this process. Required.
	Gate *Gate
	// TokenFile holds a token of the ServiceAccount that all replicas have, bound to
	// Audience: a projected volume. It is read again when it changes. Both are required.
	// The audience must not be one of the apiserver's own.
	TokenFile string
	Audience  string
	// Reviewer reviews the tokens of replicas. Required.
	Reviewer authenticationv1client.AuthenticationV1Interface
	// LeaderWait is how long a request waits in all for a leader that handles it, since
	// its arrival. Authentication runs in that time too.
	LeaderWait time.Duration
	// UnreachableAfter is how long the leader may answer no probe of Run until Check
	// fails. It must be shorter than the duration of the Lease by more than the time
	// between two renewals.
	UnreachableAfter time.Duration
	// LeaderRenewed, if not nil, returns when the leader was last seen to renew its
	// Lease. A leader that does not renew is about to be replaced, so Check does not fail
	// because of it. It must not block.
	LeaderRenewed func() time.Time
	// MaxInFlight is how many requests may be in flight. There are connections to the
	// leader for all of them.
	MaxInFlight int
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns valid options but for the required ones.
func DefaultOptions() Options {
	return Options{
		LeaderWait:       DefaultLeaderWait,
		UnreachableAfter: DefaultUnreachableAfter,
		MaxInFlight:      intake.DefaultMaxInFlight,
	}
}

func (o *Options) validate() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Gate": o.Gate == nil, "TokenFile": o.TokenFile == "", "Audience": o.Audience == "", "Reviewer": o.Reviewer == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is required", name))
		}
	}
	for name, d := range map[string]time.Duration{"LeaderWait": o.LeaderWait, "UnreachableAfter": o.UnreachableAfter} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than 0, not %s", name, d))
		}
	}
	if o.MaxInFlight <= 0 {
		errs = append(errs, fmt.Errorf("MaxInFlight must be greater than 0, not %d", o.MaxInFlight))
	}
	return errors.Join(errs...)
}
