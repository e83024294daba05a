package connection_test

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discard is the error log of servers whose clients fail on purpose.
var discard = log.New(io.Discard, "", 0)
