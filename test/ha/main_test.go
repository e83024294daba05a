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

// notifier wakes those that wait for a change. Its zero value is ready. Its callers
// hold the lock of what changes.
type notifier struct{ next chan struct{} }

// wait waits for the next change, with the lock released meanwhile.
func (n *notifier) wait(ctx context.Context, lock sync.Locker) error {
	if n.next == nil {
		n.next = make(chan struct{})
	}
	next := n.next
	lock.Unlock()
	defer lock.Lock()
	select {
	case <-next:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (n *notifier) notify() {
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
