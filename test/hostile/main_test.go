package hostile

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var inFull = flag.Bool("soak", false, "make every attack last as long as its figures need")

var attacks = figures.NewTable("What others notice of an attack: ten reports a second of a victim in another namespace, and the memory of the process",
	"attack", "what it needs", "at", "victim's requests", "failed", "p50, p99 before (ms)", "p50, p99 during (ms)", "peak MiB before", "peak MiB during")

// deadline is for what has to happen: in a moment, or after a minute on a machine
// that has other things to do.
const deadline = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(figures.Runner(replica.Runner(testenv.Runner(m))))
}

// either returns what a run in full takes, or what one in its short form does.
func either[T any](full, short T) T {
	if *inFull {
		return full
	}
	return short
}

// bounded is for what is done when the test's own context may have ended.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
}
