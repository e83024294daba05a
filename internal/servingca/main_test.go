package servingca

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }
