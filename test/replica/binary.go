package replica

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/eventd/eventd/test/testenv"
)

// binary is the eventd under test, set while Runner runs.
var binary string

// Binary is the path of the eventd under test, while Runner runs.
func Binary() string { return binary }

// Runner returns a runner that builds eventd, runs m and removes what was built.
func Runner(m testenv.TestRunner) testenv.TestRunner { return runner{m} }

type runner struct{ m testenv.TestRunner }

func (r runner) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return r.m.Run() // names only
	}
	dir, err := os.MkdirTemp("", "replica-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "eventd")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "github.com/eventd/eventd/cmd/eventd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is deployed
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "replica: building eventd:", err)
		return 1
	}
	return r.m.Run()
}
