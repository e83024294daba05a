package app

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

// asEventd makes the test binary run as eventd, so that tests check stderr and the exit
// code.
const asEventd = "EVENTD_TEST_AS_EVENTD"

// mostVerbose is the maximum verbosity.
var mostVerbose = fmt.Sprint("--v=", maxVerbosity)

func TestMain(m *testing.M) {
	if os.Getenv(asEventd) != "" {
		os.Exit(Main(os.Stderr))
	}
	goleak.VerifyTestMain(testenv.Runner(m))
}
