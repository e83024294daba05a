package app_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/cmd/kubectl-eventd/app"
	"github.com/eventd/eventd/test/testenv"
)

// asPlugin makes the test binary run as the plugin, so that tests see it as kubectl does.
const asPlugin = "EVENTD_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(app.Main())
	}
	goleak.VerifyTestMain(testenv.Runner(m))
}
