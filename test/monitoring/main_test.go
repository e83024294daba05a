package monitoring

import (
	"flag"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	built "github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var (
	withPrometheus = flag.Bool("prometheus", false, "make the tests that need prometheus and promtool in PATH")
	update         = flag.Bool("update", false, "write docs/metrics.md instead of comparing it")
)

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(built.Runner(testenv.Runner(m))) }

// prometheusTool is the path of a program that comes with Prometheus. A test that
// needs it is left out by "make test", and cannot be by "make monitoring".
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

// run runs a program and returns all that it says; if it fails, the test does.
func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(program), arguments, err, out)
	}
	return string(out)
}

// waitFor polls a condition that has nothing to wait on. The condition says what
// is still missing, "" if nothing is.
func waitFor(t *testing.T, what string, condition func() (missing string, err error)) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for {
		missing, err := condition()
		if err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited for %s in vain: %s", what, missing)
		}
	}
}
