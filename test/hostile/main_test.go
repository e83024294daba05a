package hostile

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	if os.Getenv(viewersEnv) != "" {
		if err := view(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(replica.Runner(testenv.Runner(m)))
}
