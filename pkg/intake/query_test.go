package intake_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// someQueries is an API with one resource, things, and a query that a test controls.
type someQueries func(intake.Query) (http.HandlerFunc, bool, error)

const things = "/apis/query.example.com/v1/things"

func (someQueries) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "query.example.com", Version: "v1"}
}

func (someQueries) Resources() []metav1.APIResource {
	return []metav1.APIResource{{Name: "things", SingularName: "things", Kind: "Thing", Verbs: metav1.Verbs{"get"}}}
}

func (q someQueries) Query(r intake.Query) (http.HandlerFunc, bool, error) { return q(r) }

func withQueries(q someQueries) setting {
	return withServer(func(o *intake.ServerOptions) { o.Queries = q })
}

// named authenticates each request as the user that its token names.
var named = withServer(func(o *intake.ServerOptions) {
	o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	})
})

func sends(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestQueriesAreAuthorizedByTheRightsOnEvents(t *testing.T) {
	var asked []authorizer.AttributesRecord
	s := serve(t, written(), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.(authorizer.AttributesRecord))
		if a.GetNamespace() == "shop" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "not yours", nil
	}), withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
		denied, err := q.Authorize(q.Context(), "list", q.URL.Query().Get("namespace"))
		if denied != (err != nil) {
			t.Errorf("denied is %v: %v", denied, err)
		}
		return sends("seen"), false, err
	}))
	if a := s.Do(t, http.MethodGet, things+"?namespace=shop", nil); a.Code != http.StatusOK || string(a.Body) != "seen" {
		t.Errorf("answered %d: %s", a.Code, a.Body)
	}
	a := s.Do(t, http.MethodGet, things+"?namespace=other", nil, "Accept", "text/event-stream")
	a.Want(t, http.StatusForbidden, metav1.StatusReasonForbidden)
	if text := a.Status(t).Message; !strings.Contains(text, `cannot list resource "events"`) || !strings.Contains(text, `"other"`) {
		t.Errorf("the answer says: %s", text)
	}
	for i, namespace := range []string{"shop", "other"} {
		want := authorizer.AttributesRecord{
			User: asked[i].User, Verb: "list", APIVersion: "v1", Resource: "events", Namespace: namespace, ResourceRequest: true,
		}
		equal(t, "the review", asked[i], want)
	}
	equal(t, "the number of reviews", len(asked), 2)
}

// The end of a query that waits is no error of eventd.
func TestQueryThatEndsWhileItWaitsIsNotLogged(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, message string, _ ...any) {
		t.Errorf("logged is %s: %v", message, err)
	}}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		s := serve(t, written(), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return nil, false, err }))
		s.Do(t, http.MethodGet, things, nil).Want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	}
}

// Reviews of queries wait for none of reports, nor the other way round, if each has an authorizer.
func TestQueriesHaveTheirOwnAuthorizer(t *testing.T) {
	allow := func(reviews *atomic.Int64) intake.Authorizer {
		return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			reviews.Add(1)
			return authorizer.DecisionAllow, "", nil
		})
	}
	var ofReports, ofQueries atomic.Int64
	s := serve(t, written(), withServer(func(o *intake.ServerOptions) {
		o.Authorizer, o.QueryAuthorizer = allow(&ofReports), allow(&ofQueries)
	}), withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
		_, err := q.Authorize(q.Context(), "list", "shop")
		return sends("seen"), false, err
	}))
	equal(t, "the query", s.Do(t, http.MethodGet, things, nil).Code, http.StatusOK)
	equal(t, "reviews of reports, of queries", [2]int64{ofReports.Load(), ofQueries.Load()}, [2]int64{0, 1})
	equal(t, "the report", s.Post(t, classic("web.1", 1)).Code, http.StatusCreated)
	if ofReports.Load() == 0 || ofQueries.Load() != 1 {
		t.Errorf("%d reviews of reports, %d of queries", ofReports.Load(), ofQueries.Load())
	}
}

func TestOnlyGETsOfResourcesAreQueries(t *testing.T) {
	s := serve(t, written(), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.IsResourceRequest() {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return authorizer.DecisionAllow, "", nil
	}), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return sends("seen"), false, nil }))
	for _, test := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, things, http.StatusOK},
		{http.MethodPost, things, http.StatusForbidden},
		{http.MethodGet, things + "/one", http.StatusForbidden},
		{http.MethodGet, "/apis/query.example.com/v1/others", http.StatusForbidden},
		{http.MethodGet, "/apis/query.example.com/v2/things", http.StatusForbidden},
		{http.MethodGet, "/apis/query.example.com/v1/namespaces/ns/things", http.StatusForbidden},
	} {
		if a := s.Do(t, test.method, test.path, nil); a.Code != test.code {
			t.Errorf("%s %s is answered %d, want %d: %s", test.method, test.path, a.Code, test.code, a.Body)
		}
	}
	var groups metav1.APIGroupList
	if err := json.Unmarshal(s.Do(t, http.MethodGet, "/apis", nil).Body, &groups); err != nil || len(groups.Groups) != 2 {
		t.Errorf("the groups are %+v, %v", groups.Groups, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(s.Do(t, http.MethodGet, "/apis/query.example.com/v1", nil).Body, &list); err != nil ||
		len(list.APIResources) != 1 || len(list.APIResources[0].Verbs) != 1 || list.APIResources[0].Verbs[0] != "get" {
		t.Errorf("the resources are %+v, %v", list, err)
	}
}

// Whatever queries there are, as many reports can be in flight as without them; and the other way round.
func TestQueriesTakeNoPlaceOfReports(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, written(), named, withServer(func(o *intake.ServerOptions) { o.MaxInFlight = 4 }),
			withQueries(func(intake.Query) (http.HandlerFunc, bool, error) {
				<-release
				return sends("seen"), false, nil
			}))
		var answers []<-chan answer
		for range 100 {
			answers = append(answers, background(func() answer {
				return s.Do(t, http.MethodGet, things, nil, "Authorization", "Bearer reader")
			}))
		}
		synctest.Wait()
		if a := s.Post(t, classic("web.1", 1)); a.Code != http.StatusCreated {
			t.Errorf("the report is answered %d: %s", a.Code, a.Body)
		}
		other := background(func() answer {
			return s.Do(t, http.MethodGet, things, nil, "Authorization", "Bearer another")
		})
		close(release)
		codes := map[int]int{(<-other).Code: 1}
		equal(t, "the query of another user", codes, map[int]int{http.StatusOK: 1})
		codes = map[int]int{}
		for _, a := range answers {
			codes[(<-a).Code]++
		}
		// One flow has a third of 64.
		equal(t, "the answers to one user", codes, map[int]int{http.StatusOK: 21, http.StatusTooManyRequests: 79})
	})
}

// Queries whose callers are being reviewed take no place of reports of unknown callers, either.
func TestQueriesThatWaitForAReviewTakeNoPlaceOfReports(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		reviewed := make(chan struct{})
		s := serve(t, written(), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return sends("seen"), false, nil }),
			withServer(func(o *intake.ServerOptions) {
				o.MaxInFlight = 4
				o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
					if strings.HasPrefix(req.Header.Get("Authorization"), "Bearer slow") {
						<-reviewed
					}
					return &authenticator.Response{User: &user.DefaultInfo{Name: "tester"}}, true, nil
				})
			}))
		var answers []<-chan answer
		for i := range 20 {
			answers = append(answers, background(func() answer {
				return s.Do(t, http.MethodGet, things, nil, "Authorization", fmt.Sprint("Bearer slow-", i))
			}))
			synctest.Wait() // so that it is its review that waits, and not its turn for one
		}
		if a := s.Post(t, classic("web.1", 1)); a.Code != http.StatusCreated {
			t.Errorf("the report is answered %d: %s", a.Code, a.Body)
		}
		close(reviewed)
		for _, a := range answers {
			equal(t, "the answer to a query", (<-a).Code, http.StatusOK)
		}
	})
}

// The first denial of what was allowed has yet to be confirmed, and ends a watch already.
func TestADenialIsOneBeforeItIsConfirmed(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var revoked, denied bool
		s := serve(t, written(), named,
			authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
				if revoked {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			}),
			withQueries(func(q intake.Query) (_ http.HandlerFunc, _ bool, err error) {
				denied, err = q.Authorize(q.Context(), "list", "shop")
				return sends("seen"), false, err
			}))
		for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			revoked = i > 0
			equal(t, "the answer", s.Do(t, http.MethodGet, things, nil, "Authorization", "Bearer reader").Code, want)
			equal(t, "denied", denied, revoked)
			time.Sleep(time.Minute) // longer than a decision is kept
		}
	})
}

// Whoever asks, only so many queries are answered at once: each may take megabytes.
func TestFewQueriesAreAnsweredAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var now, most int
		var mu sync.Mutex
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		s := serve(t, written(), named, withQueries(func(intake.Query) (http.HandlerFunc, bool, error) {
			return func(w http.ResponseWriter, req *http.Request) {
				add(1)
				time.Sleep(time.Second)
				add(-1)
				sends("seen")(w, req)
			}, false, nil
		}))
		var answers []<-chan answer
		for i := range 20 { // of one address, which is what counts until they are authenticated
			answers = append(answers, background(func() answer {
				return s.Do(t, http.MethodGet, things, nil, "Authorization", fmt.Sprint("Bearer reader-", i%4))
			}))
		}
		for _, a := range answers {
			equal(t, "the answer to a query", (<-a).Code, http.StatusOK)
		}
		equal(t, "the queries that are answered at once", most, 4)
	})
}

// Queries that wait for others, as for the turn of their tenant, have no seat.
func TestQueriesThatWaitKeepNoSeat(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		free := make(chan struct{})
		s := serve(t, written(), named, withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
			return func(w http.ResponseWriter, req *http.Request) {
				if q.Caller == "slow" {
					q.Wait(req.Context(), func() { <-free })
				}
				sends("seen")(w, req)
			}, false, nil
		}))
		var answers []<-chan answer
		for range 21 {
			answers = append(answers, background(func() answer {
				return s.Do(t, http.MethodGet, things, nil, "Authorization", "Bearer slow")
			}))
		}
		synctest.Wait()
		began := time.Now()
		a := s.Do(t, http.MethodGet, things, nil, "Authorization", "Bearer other")
		if waited := time.Since(began); a.Code != http.StatusOK || waited > 0 {
			t.Errorf("answered %d after %s", a.Code, waited)
		}
		close(free)
		for _, a := range answers {
			equal(t, "the answer to a query that waited", (<-a).Code, http.StatusOK)
		}
	})
}

// A server of queries alone has no Events API, whatever is asked about Events, and discovery does not speak of one.
func TestServerOfQueriesAloneRecordsNothing(t *testing.T) {
	pipe := written()
	s := serve(t, pipe, withServer(func(o *intake.ServerOptions) { o.QueriesOnly = true }),
		withQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return sends("seen"), false, nil }))
	for _, path := range []string{coreEvents, newEvents} {
		for _, test := range []struct{ method, path, contentType string }{
			{http.MethodPost, "", "application/json"},
			{http.MethodPost, "?batch=true", "application/json"},
			{http.MethodPut, "/known", "application/json"},
			{http.MethodPatch, "/known", "application/merge-patch+json"},
			{http.MethodGet, "", ""},
		} {
			s.Do(t, test.method, path+test.path, classic("known", 1), "Content-Type", test.contentType).Want(t, http.StatusNotFound, metav1.StatusReasonNotFound)
		}
	}
	pipe.WantRecorded(t, 0)
	for path, code := range map[string]int{"/api": 404, "/api/v1": 404, "/apis/events.k8s.io": 404, "/version": 200, things: 200} {
		equal(t, path, s.Do(t, http.MethodGet, path, nil).Code, code)
	}
	for _, path := range []string{"/apis", "/openapi/v2"} {
		if a := s.Do(t, http.MethodGet, path, nil, "Accept", "application/json"); a.Code != http.StatusOK || strings.Contains(string(a.Body), "events") {
			t.Errorf("%s: answered %d: %s", path, a.Code, a.Body)
		}
	}
}
