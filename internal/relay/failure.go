package relay

import "errors"

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
