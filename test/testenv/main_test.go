package testenv_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/testenv"
)

// parentEnv makes this test binary a program that starts a control plane, prints its
// kubeconfig, and waits until it is killed.
const parentEnv = "TESTENV_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		beParent()
		return
	}
	// Also the test that a runner leaves no goroutines.
	goleak.VerifyTestMain(testenv.Runner(m))
}

func beParent() {
	// With much to log there is a write to the broken pipe after our end.
	opts := testenv.Options{APIServerArgs: []string{"--v=2"}}
	c, err := testenv.Start(context.Background(), opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Kubeconfig())
	select {}
}
