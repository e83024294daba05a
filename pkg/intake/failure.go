package intake

import "errors"

// failure is why a request did not get an answer of the leader: in a metric, and
// in words for its client.
type failure struct{ reason, text string }

func (f *failure) Error() string { return f.text }

var (
	errNoLeader     = &failure{"no_leader", "no replica is known to lead"}
	errNotLeading   = &failure{"not_leading", "the replica that was asked does not lead"}
	errNotConnected = &failure{"unreachable", "the leader cannot be reached"}
	errLost         = &failure{"lost", "the leader's answer was lost"}
	errNotKnown     = &failure{"unauthorized", "the leader does not accept this replica's token"}
	errNoToken      = &failure{"no_token", "this replica has no token for the leader"}
)

// failures are all of them, and reasonTimeout is of a request whose time was up.
var failures = []*failure{errNoLeader, errNotLeading, errNotConnected, errLost, errNotKnown, errNoToken}

const reasonTimeout = "timeout"

// isLeaderless tells whether nobody was found to lead. A leader that cannot be
// reached from here may be from elsewhere.
func (f *failure) isLeaderless() bool { return f == errNoLeader || f == errNotLeading }

// repeatable tells whether a request has had no effect, and may have one
// elsewhere or later.
func repeatable(err error) bool {
	return errors.Is(err, errNoLeader) || errors.Is(err, errNotLeading) || errors.Is(err, errNotConnected)
}
