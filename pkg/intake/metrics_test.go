package intake_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
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
	want := func(rows map[string]float64) {
		t.Helper()
		all := map[string]float64{}
		for _, api := range []string{"core/v1 ", "events.k8s.io/v1 "} {
			for _, row := range []string{"201 create", "200 patch", "200 update"} {
				_, verb, _ := strings.Cut(row, " ")
				all[api+row], all[api+"429 "+verb], all[api+"503 "+verb] = 0, 0, 0
			}
		}
		maps.Copy(all, rows)
		equal(t, "requests", s.requests(t), all)
	}
	want(nil)
	for name, labels := range map[string]string{
		"refused_total":            "no_credentials rejected_credentials strangers_share share reviews seats headers",
		"aborted_answers_total":    "write share too_large",
		"request_duration_seconds": "create update patch",
	} {
		for label := range strings.FieldsSeq(labels) {
			s.WantMetric(t, 0, "eventd_intake_"+name, label)
		}
	}
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
	want(map[string]float64{
		"core/v1 200 patch": 1, "core/v1 201 create": 1, "core/v1 401 create": 1,
		"core/v1 403 create": 1, "core/v1 404 patch": 1, "core/v1 405 list": 1,
		"core/v1 405 other": 1, "core/v1 409 create": 1, "core/v1 413 create": 1,
		"core/v1 415 create": 1, "core/v1 500 create": 1, "core/v1 503 create": 1,
		"events.k8s.io/v1 400 update": 1,
	})
	s.WantMetric(t, 2, "eventd_intake_request_duration_seconds", "patch")
	for name, want := range map[string]float64{"in_flight": 0, "in_flight_capacity": 11, "names": 1, "names_capacity": 7} {
		equal(t, name, s.Metric(t, "eventd_intake_"+name), want)
	}
	if problems, err := testutil.GatherAndLint(s.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// requests returns the counter of requests by API, code and verb.
func (s *server) requests(t *testing.T) map[string]float64 {
	t.Helper()
	rows := map[string]float64{}
	for _, family := range must(s.Registry.Gather()) {
		for _, m := range family.GetMetric() {
			if l := m.GetLabel(); family.GetName() == "eventd_intake_requests_total" {
				rows[l[0].GetValue()+" "+l[1].GetValue()+" "+l[2].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return rows
}

// Headers and URLs cost no more than a body. If they are too long, the response is 431,
// before anything else.
func TestHeadersAndURLsAreLimited(t *testing.T) {
	var small []string
	for i := range 2000 {
		small = append(small, fmt.Sprint("X-", i), "")
	}
	for name, test := range map[string]struct {
		target string
		header []string
		code   int
	}{
		"almost too long":       {coreEvents, []string{"User-Agent", long(11 << 10)}, 201},
		"one large value":       {coreEvents, []string{"X-Large", long(17 << 10)}, 431},
		"many small fields":     {coreEvents, small, 431},
		"of a probe, no token":  {"/readyz", append([]string{withoutToken, "true"}, small...), 431},
		"a large assertion":     {coreEvents, []string{intake.AssertedUserHeader, long(17 << 10)}, 431},
		"a large URI":           {coreEvents + "?a=" + long(17<<10), nil, 431},
		"many parameters":       {coreEvents + "?" + strings.Repeat("a=&", 3_500), nil, 201},
		"a large Accept":        {coreEvents, []string{"Accept", strings.Repeat("a/b,", 20_000)}, 431},
		"a usual Accept":        {coreEvents, []string{"Accept", strings.Repeat("a/b,", 900) + "application/json"}, 201},
		"a large field manager": {coreEvents + "?fieldManager=" + long(1000), nil, 422},
		"a large timeout":       {coreEvents + "?timeout=" + long(1000), nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			who := &bearers{}
			s := serve(t, written(), who.set)
			a, allocated := s.allocating(t, http.MethodPost, test.target, classic("a", 1), test.header...)
			if allocated > 16<<20 {
				t.Errorf("%d KiB allocated", allocated>>10)
			}
			if test.code != 431 {
				equal(t, "code", a.Code, test.code)
				return
			}
			a.Want(t, 431, metav1.StatusReasonUnknown)
			// The connection of another replica is shared by its clients.
			equal(t, "closes the connection", a.Header.Get("Connection") == "close", name != "a large assertion")
			equal(t, "reviews", who.asked.Load(), 0)
			equal(t, "counted", s.refused(t, "headers"), 1)
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, spoil := range map[string]setting{
		"":                       func(*intake.Options, *intake.ServerOptions) {},
		"Record is required":     withOptions(func(o *intake.Options) { o.Record = nil }),
		"Filter, with Rules, is": withOptions(func(o *intake.Options) { o.Rules = (&filter{}).decide }),
		"MaxBodyBytes must be":   withOptions(func(o *intake.Options) { o.MaxBodyBytes = 0 }),
		"MaxDecodeBytes must be": withOptions(func(o *intake.Options) { o.MaxDecodeBytes = 0 }),
		"MaxNames must be":       withOptions(func(o *intake.Options) { o.MaxNames = -1 }),
		"MaxViewBytes must be":   withOptions(func(o *intake.Options) { o.MaxViewBytes = 0 }),
		"Intake is required":     withServer(func(o *intake.ServerOptions) { o.Intake = nil }),
		"Authenticator is":       withServer(func(o *intake.ServerOptions) { o.Authenticator = nil }),
		"Authorizer is required": withServer(func(o *intake.ServerOptions) { o.Authorizer = nil }),
		"MaxInFlight must not":   withServer(func(o *intake.ServerOptions) { o.MaxInFlight = -1 }),
	} {
		options, server := intake.DefaultOptions(), intake.ServerOptions{Authorizer: decision(nil)}
		options.Record = func(*occurrence.Occurrence) {}
		authenticatedByHeader(nil, &server)
		server.Intake = must(intake.New(options))
		spoil(&options, &server)
		_, err := intake.New(options)
		if err == nil {
			_, err = intake.NewHandler(server)
		}
		if want == "" && err != nil || want != "" && (err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "intake: "+want)) {
			t.Errorf("%q: error %v", want, err)
		}
	}
	taken := intake.DefaultOptions()
	taken.Record, taken.Registerer = func(*occurrence.Occurrence) {}, serve(t, written()).Registry
	if _, err := intake.New(taken); err == nil {
		t.Error("registered twice")
	}
}
