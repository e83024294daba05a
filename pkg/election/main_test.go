package election

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	if asCandidate() {
		return
	}
	goleak.VerifyTestMain(testenv.Runner(m))
}
