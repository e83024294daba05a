package soak

import (
	"flag"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/testenv"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the runs with faults by chance")
	seeds     = flag.Int("seeds", 2, "how many seeds each of them is made with")
)

// runsAtOnce is above the number of CPUs, since a run under faults mostly waits:
// for answers that do not come, and until it may try again.
const runsAtOnce = 6

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", strconv.Itoa(runsAtOnce)); err != nil {
			panic(err) // it is testing's own
		}
	}
	// client-go logs every broken answer, which these tests cause.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(figures.Runner(testenv.Runner(m)))
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}
