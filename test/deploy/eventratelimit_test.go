package deploy

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// userBurst is what the admission plugin lets a user write at once, and in each
// second from then on.
const userBurst = 20

// eventRateLimit has it configured as docs/flowcontrol.md advises against: by users.
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
// delays what they report, and costs nothing of it. What is reported through
// events.k8s.io it does not see.
func TestLimitOfAUserDelaysEventsAndLosesNone(t *testing.T) {
	t.Parallel()
	const reports = 5 * userBurst // through each API
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
		for _, event := range []any{classic(s.namespace, fmt.Sprint("limited-", i)), newStyle(s.namespace, fmt.Sprint("unlimited-", i))} {
			reporters.Go(func() {
				if err := s.takes(t, s.leader, event); err != nil {
					t.Error(err)
				}
			})
		}
	}
	reporters.Wait()
	if err := s.leader.terminate(t); err != nil {
		t.Error(err)
	}
	stored, err := administrator(t).CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != 2*reports {
		t.Errorf("%d of %d Events are stored (%v)", len(stored.Items), 2*reports, err)
	}
	created, limited := map[string]int{}, map[string]int{} // by API group
	for _, request := range requests(t, account) {
		if need, _ := request.needs(); need.resource == "events" && need.namespace == s.namespace {
			switch request.ResponseStatus.Code {
			case http.StatusCreated:
				created[need.group]++
			case http.StatusTooManyRequests:
				limited[need.group]++
			}
		}
	}
	if created[""] != reports || created[eventsv1.GroupName] != reports {
		t.Errorf("created are %v, want %d through each API", created, reports)
	}
	if limited[""] == 0 || limited[eventsv1.GroupName] != 0 {
		t.Errorf("answered 429 are %v, want some of core/v1 and no other", limited)
	}
	t.Logf("%d requests were answered 429", limited[""])
}
