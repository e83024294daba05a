package intake_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// TestInputsAreAnsweredAsListed does without a control plane what
// TestInputsAreAnsweredAsByTheAPIServer does with one, as far as the table goes: with and without plain reports.
func TestInputsAreAnsweredAsListed(t *testing.T) {
	t.Run("plain", func(t *testing.T) { answersInputs(t, func(*server) {}) })
	t.Run("not plain", func(t *testing.T) { answersInputs(t, func(s *server) { s.Handler = notPlain(s.Handler) }) })
}

func answersInputs(t *testing.T, change func(*server)) {
	p, ok := written(), written().Settle
	p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		switch o.Event.Namespace {
		case "no-such-namespace":
			err := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, o.Event.Namespace)
			return dropped(occurrence.NamespaceNotFound, err), true
		case "terminating":
			err := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "derived", errors.New("terminating"))
			return dropped(occurrence.NamespaceTerminating, err), true
		}
		return ok(o)
	}
	tokens := map[caller]string{writer: "create,update,patch", creator: "create", updater: "update,patch", limited: "limited", stranger: "none", forger: "forged"}
	s := serve(t, p, withServer(func(o *intake.ServerOptions) {
		o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
			if token == tokens[forger] {
				return nil, false, errors.New("invalid bearer token")
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
		})
	}), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		who, does := a.GetUser().GetName(), a.GetVerb()
		if who == tokens[limited] && a.GetName() == "the-one" {
			who = "patch"
		}
		if strings.Contains(who, does) && a.GetResource() == "events" && a.GetSubresource() == "" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	change(s)

	for n, in := range inputs() {
		t.Run(in.name, func(t *testing.T) {
			fill := strings.NewReplacer("NS", "ns", "TERMINATING", "terminating", "NAME", "input-"+strconv.Itoa(n))
			ask := func(i input) answer {
				req := newRequest(t.Context(), t, i.method, fill.Replace(i.path), fill.Replace(i.body))
				i.setHeader(req, tokens)
				if i.as == nobody {
					req.Header.Set(withoutToken, "true")
				}
				return s.Send(req)
			}
			for _, before := range in.before {
				before.as = writer
				if a := ask(before); a.Code >= 300 {
					t.Fatalf("what comes before is answered %d: %s", a.Code, a.Body)
				}
			}
			a := ask(in)
			want := in.result
			if in.differs != "" {
				want = in.other
			}
			a.Want(t, want.code, want.reason)
			if strings.Contains(string(a.Body), "eventd.io/") && a.Code < 300 {
				t.Errorf("eventd's annotations are told: %s", a.Body)
			}
		})
	}
}

// FuzzRequests sends anything as a body to everything that reads one. No answer
// but those that the apiserver would give too may be a server's error.
func FuzzRequests(f *testing.F) {
	seen := make(map[string]bool)
	for _, input := range inputs() {
		if len(input.body) < 2000 && !seen[input.body] {
			seen[input.body] = true
			if testing.Short() && len(seen)%3 != 0 {
				continue
			}
			f.Add(input.method, input.header["Content-Type"], []byte(input.body))
		}
	}
	s := serve(f, written())
	s.Post(f, classic("known", 1)).Want(f, 201, "")
	f.Fuzz(func(t *testing.T, method, contentType string, body []byte) {
		for _, path := range []string{coreEvents, newEvents, coreEvents + "/known", newEvents + "/known", coreEvents + "/unknown"} {
			if method != http.MethodPost && method != http.MethodPut {
				method = http.MethodPatch
			}
			req := newRequest(t.Context(), t, method, path, body)
			req.Header.Set("Content-Type", contentType)
			a := s.Send(req)
			if a.Code >= 500 && !strings.Contains(string(a.Body), "resourceVersion") && !strings.Contains(string(a.Body), "strconv.ParseUint") {
				t.Errorf("%s %s as %q: %d %s", method, path, contentType, a.Code, a.Body)
			}
			if a.Code >= 400 && a.Status(t).Status != metav1.StatusFailure {
				t.Errorf("no Status: %s", a.Body)
			}
		}
	})
}
