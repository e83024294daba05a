package soak

import (
	"flag"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/testenv"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the runs with faults by chance")
	seeds     = flag.Int("seeds", 2, "how many seeds each of them is made with")
)

func TestMain(m *testing.M) {
	// Above the number of CPUs, since a run under faults mostly waits: for answers that do
	// not come, and until it may try again. A flag of the command line comes later.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err) // it is testing's own
	}
	flag.Parse()
	// client-go logs every broken answer, which these tests cause.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(testenv.Runner(m))
}
