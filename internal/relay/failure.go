package relay

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is why a request was not answered by the leader: the label of a metric, and a
// text for the client.
type failure struct{ reason, text string }

func (f *failure) Error() string { return f.text }

var (
	errNoLeader     = &failure{"no_leader", "no replica is known to lead"}
	errNotLeading   = &failure{"not_leading", "the replica does not lead"}
	errNotConnected = &failure{"unreachable", "the leader cannot be reached"}
	errLost         = &failure{"lost", "the leader's answer was lost"}
	errNotKnown     = &failure{"unauthorized", "the leader does not accept this replica's token"}
	errNoToken      = &failure{"no_token", "this replica has no token for the leader"}
)

var failures = []*failure{errNoLeader, errNotLeading, errNotConnected, errLost, errNotKnown, errNoToken}

// reasonTimeout is the reason for a request whose deadline has passed.
const reasonTimeout = "timeout"

// isLeaderless reports whether no leader was found. One that cannot be reached from here
// may be reached by other replicas.
func (f *failure) isLeaderless() bool { return f == errNoLeader || f == errNotLeading }

// repeatable reports whether a request certainly had no effect, and may be sent again.
func repeatable(err error) bool {
	return errors.Is(err, errNoLeader) || errors.Is(err, errNotLeading) || errors.Is(err, errNotConnected)
}

// unavailable is 503 with Retry-After.
func unavailable(retryAfter int, message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfter)}
	return err
}

// notToRepeat is the response to a create of an Event without a name that may have been
// recorded: 504 without Retry-After. A repetition would be another Event.
func notToRepeat(why string) error {
	return apierrors.NewTimeoutError("the event may have been recorded, and has no name to send it again under: "+why, 0)
}
