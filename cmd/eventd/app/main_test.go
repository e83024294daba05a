package app

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

// asEventd makes the test binary run as eventd, so that tests check stderr and the exit
// code.
const asEventd = "EVENTD_TEST_AS_EVENTD"

// mostVerbose is the maximum verbosity.
var mostVerbose = fmt.Sprint("--v=", maxVerbosity)

// certificates is where servers of this process share the certificates that they make, since a key
// takes a while.
var certificates string

func TestMain(m *testing.M) {
	if os.Getenv(quickServingCA) != "" {
		servingCATimes, servingCAPatience = quickServingCATimes(), 3*time.Second
	}
	if os.Getenv(asEventd) != "" {
		os.Exit(Main(os.Stderr))
	}
	var err error
	if certificates, err = os.MkdirTemp("", "certificates-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(testenv.Runner(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(certificates)
		os.Exit(code)
	}))
}
