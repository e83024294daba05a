package client_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	// A connection of streams that the other end has closed ends a second later.
	goleak.VerifyTestMain(testenv.Runner(m), goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}
