package e2e

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(replica.Runner(testenv.RunnerWith(m, testenv.Options{Audit: true})))
}

// wantGranted checks that all requests of eventd to the shared control plane need only
// rights of deploy/. It reads the reason for which the apiserver has allowed a request: a binding of deploy/.
func wantGranted(t *testing.T) {
	requests := testenv.Shared(t).Audited(t, "eventd")
	if len(requests) == 0 {
		t.Error("the audit log has no request of eventd")
	}
	for _, r := range requests {
		granted := strings.Contains(r.Annotations["authorization.k8s.io/reason"], `Binding "eventd`)
		if !granted || r.Annotations["authorization.k8s.io/decision"] != "allow" {
			t.Fatalf("deploy/ does not grant what eventd asked for: %s %s, %v", r.Verb, r.RequestURI, r.Annotations)
		}
	}
}
