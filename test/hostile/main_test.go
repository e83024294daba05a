package hostile

import (
	"flag"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

var attacks = figures.NewTable("What others notice of an attack: ten reports a second of a victim in another namespace, and the memory of the process",
	"attack", "what it needs", "at", "victim's requests", "failed", "p50, p99 before (ms)", "p50, p99 during (ms)", "peak MiB before", "peak MiB during")

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(figures.Runner(replica.Runner(testenv.Runner(m))))
}
