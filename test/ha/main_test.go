package ha

import (
	"flag"
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
	goleak.VerifyTestMain(replica.Runner(testenv.Runner(m)))
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
