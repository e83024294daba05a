package ha

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var (
	inFull  = flag.Bool("soak", false, "make every scenario as often as its figures need")
	logs    = flag.String("logs", "", "a directory to keep the logs of all processes in")
	longest = flag.Duration("longest", time.Hour, "for how long to repeat each scenario at most")
	times   = flag.Int("times", 0, "how often to make each scenario instead")
)

// deadline is for what has to happen: in a moment, or after a minute on a machine
// that has other things to do.
const deadline = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs every answer that does not come, which is what is done here.
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

// repetitions of a scenario.
func repetitions(full, short int) int {
	if *times > 0 {
		return *times
	}
	return either(full, short)
}

// bounded is for what is done when the test's own context may have ended.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
}

// eventually asks again and again, for what nothing tells of.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not in time: " + what)
		}
	}
}

// bell rings when something has changed. Its zero value is ready. Whoever calls it
// holds the lock of what changes.
type bell struct{ rung chan struct{} }

// wait waits for the next ring, with the lock given back meanwhile.
func (b *bell) wait(ctx context.Context, lock sync.Locker) error {
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	rung := b.rung
	lock.Unlock()
	defer lock.Lock()
	select {
	case <-rung:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (b *bell) ring() {
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
