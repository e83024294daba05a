package deploy

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// userBurst is what the admission plugin lets a user write at once, and in each
// second from then on.
const userBurst = 20

// eventRateLimit has it configured as docs/security.md advises against: by users.
var eventRateLimit = fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: EventRateLimit
    configuration:
      apiVersion: eventratelimit.admission.k8s.io/v1alpha1
      kind: Configuration
      limits:
        - {type: User, qps: %[1]d, burst: %[1]d}
`, userBurst)

// All clients of eventd are one user to the plugin, whoever they are. That
// delays what they report, and costs nothing of it.
func TestLimitOfAUserDelaysEventsAndLosesNone(t *testing.T) {
	t.Parallel()
	const reports = 5 * userBurst
	account := newAccount("limited")
	var rights []right
	for _, r := range granted(t) {
		rights = append(rights, r.ofAccount(account))
	}
	makeAccount(t, account, rights)
	s := setScene(t, account, deadline)
	if err := leads(t, s); err != nil {
		t.Fatal(err)
	}
	var reporters sync.WaitGroup
	for i := range reports {
		reporters.Go(func() {
			if err := s.takes(t, s.leader, classic(s.namespace, fmt.Sprint("limited-", i))); err != nil {
				t.Error(err)
			}
		})
	}
	reporters.Wait()
	if err := s.leader.terminate(t); err != nil {
		t.Error(err)
	}
	stored, err := administrator(t).CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != reports {
		t.Errorf("%d of %d Events are stored (%v)", len(stored.Items), reports, err)
	}
	limited := 0
	for _, request := range requests(t, account) {
		if request.ResponseStatus.Code == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("the limit was not met")
	}
	t.Logf("%d requests were answered 429", limited)
}
