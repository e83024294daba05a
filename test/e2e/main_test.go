package e2e

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(replica.Runner(testenv.Runner(m)))
}
