package intake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/eventd/eventd/pkg/intake"
)

func TestDecisionsOfTheAuthorizer(t *testing.T) {
	broken := errors.New("no connection to the apiserver")
	for name, test := range map[string]struct {
		decision authorizer.Decision
		reason   string
		err      error
		code     int
		status   metav1.StatusReason
		message  string
	}{
		"allowed":             {decision: authorizer.DecisionAllow, code: 201},
		"allowed in spite of": {decision: authorizer.DecisionAllow, err: broken, code: 201},
		"no opinion": {decision: authorizer.DecisionNoOpinion, code: 403, status: metav1.StatusReasonForbidden,
			message: `events is forbidden: User "tester" cannot create resource "events" in API group "" in the namespace "ns"`},
		"denied": {decision: authorizer.DecisionDeny, reason: "not on Sundays", code: 403, status: metav1.StatusReasonForbidden,
			message: `events is forbidden: User "tester" cannot create resource "events" in API group "" in the namespace "ns": not on Sundays`},
		"denied in spite of": {decision: authorizer.DecisionDeny, err: broken, code: 403, status: metav1.StatusReasonForbidden},
		"undecided":          {decision: authorizer.DecisionNoOpinion, err: broken, code: 503, status: metav1.StatusReasonServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written(), authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
				return test.decision, test.reason, test.err
			}))
			a := s.Post(t, classic("a", 1))
			a.Want(t, test.code, test.status)
			if test.message != "" && a.Status(t).Message != test.message {
				t.Errorf("message %q, want %q", a.Status(t).Message, test.message)
			}
			if got := a.Header.Get("Retry-After"); (got == "1") != (test.code == 503) {
				t.Errorf("Retry-After %q", got)
			}
		})
	}
}

// The right to all Events of a client is reviewed first, and cached once for all of them.
// The right to one name is reviewed only if that is denied, and not if a review fails.
func TestWhatIsAuthorized(t *testing.T) {
	var asked, denied []string
	var failing string
	authorize := authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetNamespace() != "ns" || a.GetResource() != "events" || (a.GetPath() != "") != (a.GetName() != "" || a.GetPath() == coreEvents) {
			t.Errorf("asked for %+v", a)
		}
		what := strings.TrimSuffix(strings.Join([]string{a.GetVerb(), a.GetName(), a.GetAPIGroup()}, " "), " ")
		asked = append(asked, what)
		switch {
		case slices.Contains(denied, what):
			return authorizer.DecisionNoOpinion, "", nil
		case what == failing:
			return authorizer.DecisionNoOpinion, "", errors.New("no connection")
		}
		return authorizer.DecisionAllow, "", nil
	})
	const put, patch, post = http.MethodPut, http.MethodPatch, http.MethodPost
	for _, test := range []struct {
		method, path string
		denied       []string
		failing      string
		code         int
		asked        []string
	}{
		{put, "/a", []string{"create "}, "", 201, []string{"update ", "update ", "create ", "create a"}},
		{put, "/b", []string{"create "}, "create b", 503, []string{"update ", "update ", "create ", "create b"}},
		{put, "/c", []string{"create ", "create c"}, "", 403, []string{"update ", "update ", "create ", "create c"}},
		{put, "/c?dryRun=All", []string{"create ", "create c"}, "", 403, []string{"update ", "create ", "create c"}},
		{patch, "/a", nil, "", 200, []string{"patch ", "patch "}},
		{patch, "/a", []string{"patch "}, "", 200, []string{"patch ", "patch a", "patch "}},
		{patch, "/a", nil, "patch ", 503, []string{"patch "}},
		{post, "", nil, "patch ", 503, []string{"create ", "patch "}},
		{post, "?dryRun=All", nil, "patch ", 201, []string{"create "}}, // which changes nothing
	} {
		s := serve(t, written(), authorize) // to which no decision is known
		if asked, denied, failing = nil, nil, ""; test.method == patch {
			s.Do(t, put, coreEvents+"/a", classic("a", 1)).Want(t, 201, "")
		}
		asked, denied, failing = nil, test.denied, test.failing
		name, _, _ := strings.Cut(strings.TrimPrefix(test.path, "/"), "?")
		a := s.Do(t, test.method, coreEvents+test.path, classic(cmp.Or(name, "d"), 1))
		equal(t, fmt.Sprintf("%+v: code", test), a.Code, test.code)
		equal(t, fmt.Sprintf("%+v: asked", test), asked, test.asked)
	}
	denied, failing = nil, ""
	s := serve(t, written(), authorize)
	s.Do(t, put, coreEvents+"/a", classic("a", 1)).Want(t, 201, "")
	asked = nil
	s.Do(t, patch, newEvents+"/a", `{}`).Want(t, 200, "")
	equal(t, "asked for the other API", asked, []string{"patch  events.k8s.io", "patch  events.k8s.io"})
	s.Pipeline.WantRecorded(t, 1)
}

func TestWhatIsNotServed(t *testing.T) {
	s := serve(t, written())
	s.Post(t, classic("a", 1)).Want(t, 201, "")
	for _, test := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{http.MethodGet, coreEvents, 405, "POST"},
		{http.MethodGet, coreEvents + "?watch=1", 405, "POST"},
		{http.MethodDelete, coreEvents, 405, "POST"},
		{http.MethodPut, coreEvents, 405, "POST"},
		{http.MethodGet, coreEvents + "/a", 405, "PATCH, PUT"},
		{http.MethodDelete, coreEvents + "/a", 405, "PATCH, PUT"},
		{http.MethodPost, coreEvents + "/a", 405, "PATCH, PUT"},
		{http.MethodOptions, coreEvents + "/a", 405, "PATCH, PUT"},
		{http.MethodPost, "/api/v1/events", 405, ""},
		{http.MethodGet, "/apis/events.k8s.io/v1/events", 405, ""},
		{http.MethodPatch, "/api/v1/events/a", 405, ""},
		{http.MethodPost, "/api/v1/watch/namespaces/ns/events", 405, "POST"}, // authorized as watch, so it must not create
		{http.MethodPatch, coreEvents + "/a/status", 404, ""},
		{http.MethodPost, "/api/v1/namespaces/ns/pods", 404, ""},
		{http.MethodPost, "/api/v2/namespaces/ns/events", 404, ""},
		{http.MethodPost, "/apis/events.k8s.io/v1beta1/namespaces/ns/events", 404, ""},
		{http.MethodPost, "/apis/other.k8s.io/v1/namespaces/ns/events", 404, ""},
		{http.MethodGet, "/", 404, ""},
		{http.MethodGet, "/nonsense", 404, ""},
		{http.MethodGet, "/metrics", 404, ""}, // none was given
		{http.MethodPost, "/api", 405, "GET"},
		{http.MethodPost, "/version", 405, "GET"},
	} {
		a := s.Do(t, test.method, test.path, nil)
		reason := metav1.StatusReasonNotFound
		if test.code == 405 {
			reason = metav1.StatusReasonMethodNotAllowed
		}
		if got := a.Header.Get("Allow"); a.Code != test.code || got != test.allow || a.Status(t).Reason != reason {
			t.Errorf("%s %s: %d, Allow %q, want %d and %q: %s", test.method, test.path, a.Code, got, test.code, test.allow, a.Body)
		}
	}
	s.Pipeline.WantRecorded(t, 1)
}

func TestProbesNeedNoAuthentication(t *testing.T) {
	ready := errors.New("not ready")
	s := serve(t, written(), func(_ *intake.Options, o *intake.ServerOptions) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return nil, false, context.DeadlineExceeded
		})
		o.Authorizer = decision(func(authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", context.DeadlineExceeded
		})
		o.Livez = []healthz.HealthChecker{healthz.NamedCheck("alive", func(*http.Request) error { return nil })}
		o.Role = func() string { return "leader" }
		o.Readyz = []healthz.HealthChecker{healthz.NamedCheck("sink", func(*http.Request) error { return ready })}
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("metrics were given") })
	})
	for path, code := range map[string]int{
		"/healthz": 200, "/livez": 200, "/livez/alive": 200, "/healthz/alive": 200, "/readyz": 500, "/readyz/sink": 500,
		"/livezz": 503, "/metrics": 503, "/version": 503, "/api": 503,
	} {
		if a := s.Do(t, http.MethodGet, path, nil, "Authorization", "Bearer nonsense"); a.Code != code {
			t.Errorf("%s: %d, want %d: %s", path, a.Code, code, a.Body)
		}
	}
	for path, want := range map[string]bool{"/livez?verbose": true, "/livez": false, "/livez/alive?verbose": false} {
		equal(t, path+" has the role", strings.HasSuffix(string(s.Do(t, http.MethodGet, path, nil).Body), "role: leader\n"), want)
	}
	ready = nil
	if a := s.Do(t, http.MethodGet, "/readyz?verbose", nil); a.Code != 200 || !strings.Contains(string(a.Body), "[+]sink ok") {
		t.Errorf("%d: %s", a.Code, a.Body)
	}
}

func TestMetricsAreAuthorizedAsAPath(t *testing.T) {
	var asked authorizer.Attributes
	s := serve(t, written(), func(_ *intake.Options, o *intake.ServerOptions) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = a
		return authorizer.DecisionAllow, "", nil
	}))
	if a := s.Do(t, http.MethodGet, "/metrics", nil); a.Code != 200 {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}
	if asked == nil || asked.IsResourceRequest() || asked.GetPath() != "/metrics" || asked.GetVerb() != "get" {
		t.Errorf("asked for %+v", asked)
	}
}

func TestAnswerThatCannotBeEndedIsAborted(t *testing.T) {
	s := serve(t, written(), authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
		panic(http.ErrAbortHandler)
	}))
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("net/http is told %v", p)
		}
	}()
	a := s.Post(t, classic("a", 1))
	t.Errorf("answered %d", a.Code)
}
