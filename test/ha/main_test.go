package ha

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var (
	logs    = flag.String("logs", "", "a directory to keep the logs of all processes in")
	longest = flag.Duration("longest", time.Hour, "for how long to repeat each scenario at most")
	times   = flag.Int("times", 0, "how often to make each scenario instead")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs every request without an answer, which these tests cause.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(figures.Runner(replica.Runner(testenv.Runner(m))))
}

// repetitions of a scenario.
func repetitions(full, short int) int {
	if *times > 0 {
		return *times
	}
	return longrun.Either(full, short)
}

// progress is how often something has been done of how often it was to be.
type progress struct{ done, planned int }

func (p progress) String() string {
	if p.done < p.planned {
		return fmt.Sprintf("%d of %d", p.done, p.planned)
	}
	return fmt.Sprint(p.done)
}

// repeat does something as often as it is to be done. It ends early if the test has
// failed, and when the time of -longest is over, which is an error without -times.
func repeat(t *testing.T, n int, do func(i int)) progress {
	t.Helper()
	steps := longrun.NewProgress(t, n)
	for i := range n {
		if t.Failed() {
			t.Fatalf("failed in repetition %d of %d", i, n)
		}
		if steps.Elapsed() > *longest {
			p := progress{i, n}
			if *times == 0 {
				t.Errorf("%s, and no time for more", p)
			}
			return p
		}
		do(i)
		steps.Step()
	}
	return progress{n, n}
}
