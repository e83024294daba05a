package monitoring

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var (
	withPrometheus = flag.Bool("prometheus", false, "make the tests that need prometheus and promtool in PATH")
	update         = flag.Bool("update", false, "write docs/metrics.md instead of comparing it")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(replica.Runner(testenv.Runner(m))) }

// prometheusTool is the path of a program of Prometheus. "make test" skips the tests
// that need one, and "make monitoring" does not.
func prometheusTool(t *testing.T, name string) string {
	t.Helper()
	if !*withPrometheus {
		t.Skipf("needs %s: make monitoring", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; Debian's package prometheus has it", err)
	}
	return path
}

// run runs a program and returns all of its output. An error fails the test.
func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(program), arguments, err, out)
	}
	return string(out)
}

// startReplica starts an eventd as the ServiceAccount of deploy/, with leader election and a
// receiver, and waits until it serves.
func startReplica(t *testing.T, c *testenv.ControlPlane) *replica.Replica {
	t.Helper()
	credentials := replica.Deploy(t, c)
	file := filepath.Join(filepath.Dir(t.TempDir()), "events.jsonl") // of all replicas of the test
	replica.DeployDelivery(t, c)
	replica.DeployHistory(t, c)
	return replica.Run(t, c, replica.Options{
		Credentials: credentials, PeerToken: replica.PeerToken(t, c), Flags: append(replica.Delivering(t, "archive", file), "--history-bytes=8Mi", "--serving-ca=managed"),
	})
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
