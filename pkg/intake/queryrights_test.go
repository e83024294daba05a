package intake_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// A denial ends a watch that is open. A review that fails does not deny.
func TestAReviewThatFailsIsNoDenial(t *testing.T) {
	failed := errors.New("no apiserver")
	for name, test := range map[string]struct {
		decision authorizer.Decision
		err      error
		denied   bool
		code     int
	}{
		"allowed":                {authorizer.DecisionAllow, nil, false, http.StatusOK},
		"allowed, with an error": {authorizer.DecisionAllow, failed, false, http.StatusOK},
		"not allowed":            {authorizer.DecisionNoOpinion, nil, true, http.StatusForbidden},
		"failed":                 {authorizer.DecisionNoOpinion, failed, false, http.StatusServiceUnavailable},
		"denied, with an error":  {authorizer.DecisionDeny, failed, true, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written(),
				authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) { return test.decision, "", test.err }),
				withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
					denied, err := q.Authorize(q.Context(), "list", "shop")
					equal(t, "denied", denied, test.denied)
					return sends("seen"), false, err
				}))
			equal(t, "the answer", s.Do(t, http.MethodGet, things, nil).Code, test.code)
		})
	}
}

// While the authorizer keeps a decision, to repeat the review costs the apiserver nothing, and is not limited.
func TestReviewsOfQueriesAreLimitedUnlessTheyAreCached(t *testing.T) {
	for name, test := range map[string]struct{ ttl, waits time.Duration }{
		"cached":             {time.Minute, 0},
		"cached, by default": {0, 0},
		"not cached":         {-1, 16 * time.Second}, // 50 per second after the first 200
	} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, written(), withServer(func(o *intake.ServerOptions) { o.AccessReviewTTL = test.ttl }),
				withQueries(func(q intake.Query) (_ http.HandlerFunc, _ bool, err error) {
					for range 1000 {
						if _, err = q.Authorize(q.Context(), "list", "shop"); err != nil {
							break
						}
					}
					return sends("seen"), false, err
				}))
			began := time.Now()
			equal(t, "the answer", s.Do(t, http.MethodGet, things, nil).Code, http.StatusOK)
			equal(t, "waited", time.Since(began), test.waits)
		})
	}
}
