package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

// binary is the eventd under test.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "e2e-")
	if err == nil {
		binary = filepath.Join(dir, "eventd")
		build := exec.Command("go", "build", "-o", binary, "github.com/eventd/eventd/cmd/eventd")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: building eventd:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(testenv.Runner(m), goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
