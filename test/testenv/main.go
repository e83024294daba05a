package testenv

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
)

// shared is the control plane of this test binary, set while its tests run.
var shared *ControlPlane

// Main runs the tests of a package with a control plane, which Shared returns
// to them, and returns the exit code. If the control plane cannot be started,
// or does not end well, that is a failure of the package.
func Main(m *testing.M) int { return Runner(m).Run() }

// TestRunner is what TestMain gets, as far as it is used; goleak.VerifyTestMain
// takes one too.
type TestRunner interface{ Run() int }

// Runner returns a runner that starts a control plane, runs m and stops the
// control plane again, so that what wraps it sees nothing of it.
func Runner(m *testing.M) TestRunner { return RunnerWith(m, Options{}) }

// RunnerWith is Runner with another control plane than the usual one.
func RunnerWith(m *testing.M, options Options) TestRunner { return runner{m, options} }

type runner struct {
	m       *testing.M
	options Options
}

func (r runner) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return r.m.Run() // names only
	}
	// Not bound to a signal: an interrupted test binary just dies, and the
	// control plane sees that.
	var err error
	if shared, err = Start(context.Background(), r.options); err != nil {
		fmt.Fprintf(os.Stderr, "testenv: %v\n", err)
		return 1
	}
	code := r.m.Run()
	err = shared.Stop()
	shared = nil
	if err != nil {
		fmt.Fprintf(os.Stderr, "testenv: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Shared returns the control plane of this test binary. It belongs to all tests
// of the package: use a Namespace, and Start another one to take it Down.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	if shared == nil {
		t.Fatal("testenv: no control plane: this package's TestMain must call testenv.Main")
	}
	if err := shared.check(); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return shared
}
