package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the control plane of this test binary, which the first call of Shared
// starts.
var shared struct {
	options   Options
	available bool // while Runner runs the tests
	start     sync.Once
	plane     *ControlPlane
	err       error
}

// Main runs the tests of a package, for which Shared starts a control plane, and returns
// the exit code. A control plane that does not stop in order fails the package.
func Main(m *testing.M) int { return Runner(m).Run() }

// TestRunner runs the tests of a package, as testing.M does. goleak.VerifyTestMain
// accepts one.
type TestRunner interface{ Run() int }

// Runner returns a runner that runs m and then stops the control plane, if one was
// started.
func Runner(m *testing.M) TestRunner { return RunnerWith(m, Options{}) }

// RunnerWith is Runner with options.
func RunnerWith(m *testing.M, options Options) TestRunner { return runner{m, options} }

type runner struct {
	m       *testing.M
	options Options
}

func (r runner) Run() int {
	shared.options, shared.available = r.options, true
	code := r.m.Run()
	shared.available = false
	if shared.plane == nil {
		return code
	}
	if err := shared.plane.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "testenv: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Shared returns the control plane of this test binary, and starts it if no test has
// before. It belongs to all tests of the package: use a Namespace, and Start another one
// to take it Down. With -short the test is skipped.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	SkipIfShort(t)
	if !shared.available {
		t.Fatal("testenv: no control plane: this package's TestMain must call testenv.Main")
	}
	// Not bound to a test or a signal: the control plane ends with the test binary.
	shared.start.Do(func() { shared.plane, shared.err = Start(context.Background(), shared.options) })
	if shared.err != nil {
		t.Fatalf("testenv: %v", shared.err)
	}
	if err := shared.plane.check(); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return shared.plane
}

// SkipIfShort skips a test that needs a control plane if the tests are run with -short,
// as make check does.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
}
