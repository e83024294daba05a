package monitoring

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/eventd/app"
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

// configurations are those of the roles: a rule that does nothing, and a receiver.
var configurations = map[string]string{
	app.RoleIntake: `
intake:
- {name: noise, match: event.reason == "Noise", drop: true, dryRun: true}
`,
	app.RoleObserve: `
receivers:
- {name: archive, from: Oldest, jsonLines: {path: events.jsonl}}
routes:
- {name: all, receivers: [archive]}
metrics:
- name: events
`,
}

// startReplica starts an eventd of a role, or of both, as a ServiceAccount of deploy/, with leader election and all
// that it can have, and waits until it serves.
func startReplica(t *testing.T, c *testenv.ControlPlane, role string) *replica.Replica {
	t.Helper()
	o := replica.Options{Credentials: replica.Deploy(t, c), PeerToken: replica.PeerToken(t, c)}
	if role == app.RoleObserve {
		o.Credentials = c.ServiceAccount(t, metav1.NamespaceSystem, "eventd-observe")
		o.PeerToken = c.ServiceAccount(t, metav1.NamespaceSystem, "eventd-observe", "eventd").BearerToken
	} else {
		replica.DeployObserve(t, c)
	}
	dir := t.TempDir()
	configuration := "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n"
	o.Flags = []string{"--role=" + role, "--config=" + filepath.Join(dir, "configuration.yaml")}
	if role != app.RoleObserve {
		configuration += configurations[app.RoleIntake]
		o.Flags = append(o.Flags, "--serving-ca=managed")
	}
	if role != app.RoleIntake {
		configuration += strings.ReplaceAll(configurations[app.RoleObserve], "events.jsonl", filepath.Join(dir, "events.jsonl"))
		o.Flags = append(o.Flags, "--cluster-name=test", "--history-bytes=8Mi")
	}
	if err := os.WriteFile(filepath.Join(dir, "configuration.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	return replica.Run(t, c, o)
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
