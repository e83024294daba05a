package intake_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

func TestEveryRequestAboutEventsIsCounted(t *testing.T) {
	s := serve(t, written(), func(o *intake.Options, so *intake.ServerOptions) {
		o.MaxNames, o.MaxBodyBytes, so.MaxInFlight = 7, 10_000, 11
		so.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
			switch name {
			case "bad":
				return nil, false, nil
			case "undecided":
				return nil, false, context.DeadlineExceeded
			case "panic":
				panic("authenticating")
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
		})
	}, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "denied" {
			return authorizer.DecisionDeny, "", nil
		}
		return authorizer.DecisionAllow, "", nil
	}))
	// want compares the counter. The keys are API, code and verb; a row that exists from
	// the start is 0 unless it is given.
	want := func(rows map[string]int) {
		t.Helper()
		all := map[string]int{}
		for verb, code := range map[string]string{"create": "201", "patch": "200", "update": "200"} {
			for _, code := range []string{code, "429", "503"} {
				all["core/v1 "+code+" "+verb], all["events.k8s.io/v1 "+code+" "+verb] = 0, 0
			}
		}
		maps.Copy(all, rows)
		text := "# HELP eventd_intake_requests_total Requests about Events by API, verb and HTTP status code.\n" +
			"# TYPE eventd_intake_requests_total counter\n"
		for row, n := range all {
			label := strings.Fields(row)
			text += fmt.Sprintf("eventd_intake_requests_total{api=%q,code=%q,verb=%q} %d\n", label[0], label[1], label[2], n)
		}
		if err := testutil.GatherAndCompare(s.Registry, strings.NewReader(text), "eventd_intake_requests_total"); err != nil {
			t.Error(err)
		}
	}
	want(nil)
	s.Post(t, classic("a", 1))
	s.Post(t, classic("a", 1))
	s.Patch(t, "a", `{"count":2}`)
	s.Patch(t, "unknown", `{"count":2}`)
	s.Do(t, http.MethodPut, newEvents+"/a", "{}")
	for _, who := range []string{"bad", "undecided", "panic", "denied"} {
		s.Do(t, http.MethodPost, coreEvents, classic("b", 1), "Authorization", "Bearer "+who)
	}
	s.Do(t, http.MethodPost, coreEvents, classic("b", 1), "Content-Type", "text/plain")
	s.Do(t, http.MethodPost, coreEvents, strings.Repeat("x", 20_000))
	s.Do(t, http.MethodGet, coreEvents, nil)
	s.Do(t, "NONSENSE", coreEvents, nil)
	s.Do(t, http.MethodGet, "/healthz", nil)                      // not about events
	s.Do(t, http.MethodGet, "/api", nil)                          // not about events
	s.Do(t, http.MethodPost, "/api/v1/namespaces/ns/pods", nil)   // not about events
	s.Do(t, http.MethodGet, "/apis/events.k8s.io/v2/events", nil) // not these APIs
	want(map[string]int{
		"core/v1 200 patch": 1, "core/v1 201 create": 1, "core/v1 401 create": 1,
		"core/v1 403 create": 1, "core/v1 404 patch": 1, "core/v1 405 list": 1,
		"core/v1 405 other": 1, "core/v1 409 create": 1, "core/v1 413 create": 1,
		"core/v1 415 create": 1, "core/v1 500 create": 1, "core/v1 503 create": 1,
		"events.k8s.io/v1 400 update": 1,
	})
	rest := `# HELP eventd_intake_in_flight Requests about Events in flight.
# TYPE eventd_intake_in_flight gauge
eventd_intake_in_flight 0
# HELP eventd_intake_in_flight_capacity Maximum number of requests in flight. Above it, or above its share, a caller gets 429.
# TYPE eventd_intake_in_flight_capacity gauge
eventd_intake_in_flight_capacity 11
# HELP eventd_intake_names Posted names in the cache.
# TYPE eventd_intake_names gauge
eventd_intake_names 1
# HELP eventd_intake_names_capacity Capacity of the cache of posted names.
# TYPE eventd_intake_names_capacity gauge
eventd_intake_names_capacity 7
`
	if err := testutil.GatherAndCompare(s.Registry, strings.NewReader(rest),
		"eventd_intake_in_flight", "eventd_intake_in_flight_capacity", "eventd_intake_names", "eventd_intake_names_capacity"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(s.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestMetricsThatAreTakenAreAnError(t *testing.T) {
	s := serve(t, written())
	o := intake.DefaultOptions()
	o.Record, o.Registerer = s.Pipeline.Record, s.Registry
	if _, err := intake.New(o); err == nil {
		t.Error("registered twice")
	}
}
