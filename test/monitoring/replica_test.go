package monitoring

import (
	"strings"
	"testing"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// startReplica starts an eventd as the ServiceAccount of deploy/, with leader
// election, and waits until it serves.
func startReplica(t *testing.T, c *testenv.ControlPlane) *replica.Replica {
	t.Helper()
	return replica.Run(t, c, replica.Options{PeerToken: replica.PeerToken(t, c)})
}

// address is host and port.
func address(r *replica.Replica) string { return strings.TrimPrefix(r.URL(""), "https://") }

// waitFor waits until try returns nil.
func waitFor(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := await.Success(t.Context(), await.Timeout, try); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
