package intake

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// DefaultPark is how long a request waits for a leader. A handover is shorter.
const DefaultPark = time.Second

// RelayOptions are what a Relay needs and what it may take. Begin with
// DefaultRelayOptions.
type RelayOptions struct {
	// Gate says what is accepted by this process. Required.
	Gate *Gate
	// TokenFile holds a token of the ServiceAccount that all replicas run as,
	// bound to Audience: a projected volume. It is read again when it changes.
	// Both are required. The audience must not be one of the apiserver's own.
	TokenFile string
	Audience  string
	// Reviewer is asked whose token another replica presents. Required.
	Reviewer authenticationv1client.AuthenticationV1Interface
	// Park is how long a request may wait in all until there is a leader to take
	// it.
	Park time.Duration
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultRelayOptions returns the options that a daemon starts with; the required
// ones have yet to be set.
func DefaultRelayOptions() RelayOptions { return RelayOptions{Park: DefaultPark} }

func (o *RelayOptions) validate() error {
	var errs []error
	if o.Gate == nil {
		errs = append(errs, errors.New("a gate is required"))
	}
	if o.TokenFile == "" {
		errs = append(errs, errors.New("a token file is required"))
	}
	if o.Audience == "" {
		errs = append(errs, errors.New("an audience is required"))
	}
	if o.Reviewer == nil {
		errs = append(errs, errors.New("a reviewer of tokens is required"))
	}
	if o.Park <= 0 {
		errs = append(errs, fmt.Errorf("the time to park must be greater than 0, not %s", o.Park))
	}
	return errors.Join(errs...)
}

// Relay brings every request that would be recorded to the leader: here if the
// gate lets it in, or else on the replica that SetLeader has named. It is safe
// for use by many goroutines. Close ends what it runs.
type Relay struct {
	options RelayOptions
	changes news // of the leader

	mu     sync.Mutex
	leader leaderAddress
}

// leaderAddress is where a leader serves, and the fingerprint of the certificate
// that it serves with.
type leaderAddress struct{ hostPort, certificateSHA256 string }

// NewRelay returns a relay that knows of no leader. It fails if the options are
// not valid or a metric cannot be registered.
func NewRelay(o RelayOptions) (*Relay, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("intake: relay: %w", err)
	}
	return &Relay{options: o}, nil
}

// SetLeader says where the leader serves, host:port, and the fingerprint of its
// certificate: the SHA-256 of its DER form, in hex. Both are "" if nobody is
// known to lead, or if it is this process. It is to be called at every change,
// and does not block.
func (r *Relay) SetLeader(address, certificateSHA256 string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = leaderAddress{address, certificateSHA256}
	r.changes.tell()
}

// Close closes the connections to the leader; requests that are still on one are
// cut off. Nothing is passed on any more.
func (r *Relay) Close() { r.SetLeader("", "") }
