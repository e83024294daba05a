package monitoring

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	built "github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// replica is a running eventd.
type replica struct {
	*built.Replica
	t *testing.T
}

// startReplica starts an eventd as the ServiceAccount of deploy/, with leader
// election, and waits until it serves.
func startReplica(t *testing.T, c *testenv.ControlPlane) *replica {
	t.Helper()
	credentials := built.Deploy(t, c)
	return &replica{built.Run(t, c, built.Options{Credentials: credentials, PeerToken: built.PeerToken(t, c)}), t}
}

// address is host and port.
func (r *replica) address() string {
	return strings.TrimPrefix(r.Config(&rest.Config{}).Host, "https://")
}

// metrics reads /metrics.
func (r *replica) metrics(credentials *rest.Config) ([]byte, error) {
	return metrics.Text(r.t.Context(), r.Config(credentials))
}

// terminate ends the replica in order.
func (r *replica) terminate() {
	r.t.Helper()
	ctx, cancel := await.Context(r.t)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		r.t.Error(err)
	}
}

// waitFor waits until try returns nil.
func waitFor(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := await.Success(t.Context(), await.Timeout, try); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
