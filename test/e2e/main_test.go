package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/audit"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(replica.Runner(audited{m}))
}

// started is whether a test has started an eventd for the shared control plane.
var started atomic.Bool

// audited runs tests with a control plane that keeps an audit log. All requests of eventd
// must need only rights of deploy/.
type audited struct{ m *testing.M }

func (a audited) Run() int {
	code, err := a.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return max(code, 1)
	}
	return code
}

func (a audited) run() (code int, err error) {
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	log, err := audit.In(dir)
	if err != nil {
		return 1, err
	}
	code = testenv.RunnerWith(a.m, testenv.Options{APIServerArgs: log.APIServerArgs()}).Run()
	if started.Load() {
		err = wantGranted(log)
	}
	return code, err
}

// wantGranted reads the reason for which the apiserver has allowed a request: a binding
// of deploy/, except for what every account may read.
func wantGranted(log *audit.Log) error {
	requests, err := log.Of("eventd")
	if err != nil {
		return err
	}
	if len(requests) == 0 {
		return errors.New("the audit log has no request of eventd")
	}
	for _, r := range requests {
		granted := strings.Contains(r.Annotations["authorization.k8s.io/reason"], `Binding "eventd`) || slices.Contains(audit.ReadByAll, r.RequestURI)
		if !granted || r.Annotations["authorization.k8s.io/decision"] != "allow" {
			return fmt.Errorf("deploy/ does not grant what eventd asked for: %s %s, %v", r.Verb, r.RequestURI, r.Annotations)
		}
	}
	return nil
}
