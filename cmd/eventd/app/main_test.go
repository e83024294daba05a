package app

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

// asEventd makes the test binary run as eventd, so that tests check stderr and the exit
// code.
const asEventd = "EVENTD_TEST_AS_EVENTD"

func TestMain(m *testing.M) {
	if os.Getenv(asEventd) != "" {
		os.Exit(Main(os.Stderr))
	}
	goleak.VerifyTestMain(testenv.Runner(m))
}
