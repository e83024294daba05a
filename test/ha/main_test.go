package ha

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var (
	logs  = flag.String("logs", "", "a directory to keep the logs of all processes in")
	times = flag.Int("times", 0, "how often to make each scenario instead")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs every request without an answer, which these tests cause.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(replica.Runner(planes{testenv.Runner(m)}))
}

// inParallel is how many tests run at once: they wait most of the time.
const inParallel = 2

// free has the control planes that no test uses. nil is one that is not started.
var free = make(chan *testenv.ControlPlane, inParallel)

// clusterOf returns a control plane that no other test uses meanwhile: all fleets of one share a Lease. Tests with one
// run in parallel, but in a full run, which measures.
func clusterOf(t *testing.T) *testenv.ControlPlane {
	t.Helper()
	if *longrun.Full {
		return testenv.Shared(t)
	}
	testenv.SkipIfShort(t)
	t.Parallel()
	cluster := <-free
	t.Cleanup(func() { free <- cluster })
	if cluster == nil {
		var err error
		if cluster, err = testenv.Start(context.Background(), testenv.Options{}); err != nil { // for later tests, too
			t.Fatal(err)
		}
	}
	return cluster
}

// planes runs tests, and then stops the control planes of clusterOf.
type planes struct{ testenv.TestRunner }

func (p planes) Run() int {
	for range inParallel {
		free <- nil
	}
	code := p.TestRunner.Run()
	for range inParallel {
		if cluster := <-free; cluster != nil {
			if err := cluster.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "ha:", err)
				code = max(code, 1)
			}
		}
	}
	return code
}

// repeat does something so often in a full or in a short run. It ends early if the test
// has failed.
func repeat(t *testing.T, full, short int, do func(i int)) {
	t.Helper()
	n := longrun.Either(full, short)
	if *times > 0 {
		n = *times
	}
	for i := range n {
		if t.Failed() {
			t.Fatalf("failed in repetition %d of %d", i, n)
		}
		do(i)
		longrun.Report(t, "%d of %d", i+1, n)
	}
}
