package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// DefaultLeaderWait is longer than a handover. Without a leader, clients are answered within a second.
const DefaultLeaderWait = 900 * time.Millisecond

// Options of a Relay. All are required but for those that say otherwise.
type Options struct {
	// Identity is the name of this replica for others, optional.
	Identity string
	// Gate admits requests to this process.
	Gate *Gate
	// TokenFile holds a token of the ServiceAccount that all replicas have, bound to
	// Audience: a projected volume. It is read again when it changes.
	// The audience must not be one of the apiserver's own.
	TokenFile string
	Audience  string
	// Reviewer reviews the tokens of replicas.
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
