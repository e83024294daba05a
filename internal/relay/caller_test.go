package relay_test

import (
	"encoding/base64"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestRightToPatchIsThatOfTheCallerOfAStandby(t *testing.T) {
	leader := standby(t, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "create" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	other := standby(t)
	listenTLS(t, leader).leads(other)
	leader.lead(t)
	defer leader.stopLeading(nil)
	other.post(t, classic("a", 1)).want(t, 201, "")
	if o := leader.pipeline.occurrences()[0]; o.User != "tester" || !o.CreateOnly {
		t.Errorf("the leader has recorded user %q, create only %v", o.User, o.CreateOnly)
	}
}

func TestForwardedOccurrenceNamesTheCallerAndNotTheReplica(t *testing.T) {
	const kubelet = "system:node:node-1"
	leader, other := standby(t), standby(t, authenticated(&user.DefaultInfo{Name: kubelet}))
	listenTLS(t, leader).leads(other)
	ended := leader.lead(t)
	other.post(t, classic("a", 1)).want(t, 201, "")
	other.patch(t, "a", `{"count":2}`).want(t, 200, "")
	occurrences := leader.pipeline.occurrences()
	for i, o := range occurrences {
		if o.User != kubelet {
			t.Errorf("occurrence %d is of the user %q", i, o.User)
		}
	}
	if len(occurrences) != 2 {
		t.Errorf("%d occurrences, not 2", len(occurrences))
	}
	leader.stopLeading(nil)
	<-ended
}

// Whom a replica asserts may take 48 KiB, which are decoded for a replica only.
func TestAssertionOfAStrangerIsNotDecoded(t *testing.T) {
	leader := standby(t)
	assertion := base64.StdEncoding.EncodeToString([]byte(`{"username":"a","groups":[` + strings.Repeat(`"",`, 11_000) + `""]}`))
	send := func() answer {
		return leader.do(t, http.MethodPost, coreEvents, classic("a", 1), "Authorization", "Bearer bogus", "Eventd-Asserted-User", assertion)
	}
	for _, which := range []string{"new", "rejected"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		send().want(t, 401, metav1.StatusReasonUnauthorized)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 512<<10 {
			t.Errorf("%s token: %d KiB allocated for an assertion of %d KiB", which, allocated>>10, len(assertion)>>10)
		}
	}
}
