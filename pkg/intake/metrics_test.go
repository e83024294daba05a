package intake_test

import (
	"context"
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
	want := func(lines string) {
		t.Helper()
		const head = "# HELP eventd_intake_requests_total Requests about Events by API, verb and HTTP status code.\n" +
			"# TYPE eventd_intake_requests_total counter\n"
		if err := testutil.GatherAndCompare(s.registry, strings.NewReader(head+lines), "eventd_intake_requests_total"); err != nil {
			t.Error(err)
		}
	}
	want(`eventd_intake_requests_total{api="core/v1",code="200",verb="patch"} 0
eventd_intake_requests_total{api="core/v1",code="200",verb="update"} 0
eventd_intake_requests_total{api="core/v1",code="201",verb="create"} 0
eventd_intake_requests_total{api="core/v1",code="429",verb="create"} 0
eventd_intake_requests_total{api="core/v1",code="429",verb="patch"} 0
eventd_intake_requests_total{api="core/v1",code="429",verb="update"} 0
eventd_intake_requests_total{api="core/v1",code="503",verb="create"} 0
eventd_intake_requests_total{api="core/v1",code="503",verb="patch"} 0
eventd_intake_requests_total{api="core/v1",code="503",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="200",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="200",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="201",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="update"} 0
`)
	s.post(t, classic("a", 1))
	s.post(t, classic("a", 1))
	s.patch(t, "a", `{"count":2}`)
	s.patch(t, "unknown", `{"count":2}`)
	s.do(t, http.MethodPut, newEvents+"/a", "{}")
	for _, who := range []string{"bad", "undecided", "panic", "denied"} {
		s.do(t, http.MethodPost, coreEvents, classic("b", 1), "Authorization", "Bearer "+who)
	}
	s.do(t, http.MethodPost, coreEvents, classic("b", 1), "Content-Type", "text/plain")
	s.do(t, http.MethodPost, coreEvents, strings.Repeat("x", 20_000))
	s.do(t, http.MethodGet, coreEvents, nil)
	s.do(t, "NONSENSE", coreEvents, nil)
	s.do(t, http.MethodGet, "/healthz", nil)                      // not about events
	s.do(t, http.MethodGet, "/api", nil)                          // not about events
	s.do(t, http.MethodPost, "/api/v1/namespaces/ns/pods", nil)   // not about events
	s.do(t, http.MethodGet, "/apis/events.k8s.io/v2/events", nil) // not these APIs
	want(`eventd_intake_requests_total{api="core/v1",code="200",verb="patch"} 1
eventd_intake_requests_total{api="core/v1",code="200",verb="update"} 0
eventd_intake_requests_total{api="core/v1",code="201",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="401",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="403",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="404",verb="patch"} 1
eventd_intake_requests_total{api="core/v1",code="405",verb="list"} 1
eventd_intake_requests_total{api="core/v1",code="405",verb="other"} 1
eventd_intake_requests_total{api="core/v1",code="409",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="413",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="415",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="429",verb="create"} 0
eventd_intake_requests_total{api="core/v1",code="429",verb="patch"} 0
eventd_intake_requests_total{api="core/v1",code="429",verb="update"} 0
eventd_intake_requests_total{api="core/v1",code="500",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="503",verb="create"} 1
eventd_intake_requests_total{api="core/v1",code="503",verb="patch"} 0
eventd_intake_requests_total{api="core/v1",code="503",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="200",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="200",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="201",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="400",verb="update"} 1
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="429",verb="update"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="create"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="patch"} 0
eventd_intake_requests_total{api="events.k8s.io/v1",code="503",verb="update"} 0
`)
	rest := `# HELP eventd_intake_in_flight Requests about Events in flight.
# TYPE eventd_intake_in_flight gauge
eventd_intake_in_flight 0
# HELP eventd_intake_in_flight_capacity Maximum number of requests in flight. Above it, or above its share, a caller is answered 429.
# TYPE eventd_intake_in_flight_capacity gauge
eventd_intake_in_flight_capacity 11
# HELP eventd_intake_names Posted names in the cache.
# TYPE eventd_intake_names gauge
eventd_intake_names 1
# HELP eventd_intake_names_capacity Capacity of the cache of posted names.
# TYPE eventd_intake_names_capacity gauge
eventd_intake_names_capacity 7
`
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(rest),
		"eventd_intake_in_flight", "eventd_intake_in_flight_capacity", "eventd_intake_names", "eventd_intake_names_capacity"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(s.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestMetricsThatAreTakenAreAnError(t *testing.T) {
	s := serve(t, written())
	o := intake.DefaultOptions()
	o.Record, o.Registerer = s.pipeline.record, s.registry
	if _, err := intake.New(o); err == nil {
		t.Error("registered twice")
	}
}
