package intake_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// withPaths serves metrics, with rights that are reviewed apart from those of reports.
func withPaths(metrics http.HandlerFunc, ofReports authorizer.AuthorizerFunc) setting {
	return withServer(func(o *intake.ServerOptions) {
		o.MaxInFlight, o.Metrics, o.Authorizer = 4, metrics, ofReports
		o.Queries = someQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return sends("seen"), false, nil })
		o.QueryAuthorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetPath() == "/metrics" && a.GetUser().GetName() != "stranger" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	})
}

// All places of reports are taken by requests that wait for a review, as when the apiserver hangs.
func TestMetricsAreServedWhileReportsWait(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		reviewed := make(chan struct{})
		s := serve(t, written(), named, withPaths(sends("eventd_up 1"), func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			<-reviewed
			return authorizer.DecisionAllow, "", nil
		}))
		var reports []<-chan answer
		for i := range 20 {
			reports = append(reports, background(func() answer {
				return s.Do(t, http.MethodPost, coreEvents, classic(fmt.Sprint("web.", i), 1), "Authorization", fmt.Sprint("Bearer reporter-", i))
			}))
			synctest.Wait() // those that are not authenticated yet have a part of the places of their address
		}
		for user, want := range map[string]int{"prometheus": http.StatusOK, "stranger": http.StatusForbidden} {
			a := s.Do(t, http.MethodGet, "/metrics", nil, "Authorization", "Bearer "+user)
			equal(t, "the answer to "+user, a.Code, want)
		}
		close(reviewed)
		codes := map[int]int{}
		for _, a := range reports {
			codes[(<-a).Code]++
		}
		equal(t, "the reports", codes, map[int]int{http.StatusCreated: 4, http.StatusTooManyRequests: 16})
	})
}

// And however many metrics are read, reports have their places and seats.
func TestMetricsTakeNoPlaceOfReports(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, written(), named, withPaths(func(w http.ResponseWriter, req *http.Request) {
			<-release
			sends("eventd_up 1")(w, req)
		}, func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}))
		var scrapes []<-chan answer
		for i := range 20 {
			scrapes = append(scrapes, background(func() answer {
				return s.Do(t, http.MethodGet, "/metrics", nil, "Authorization", fmt.Sprint("Bearer prometheus-", i))
			}))
			synctest.Wait() // few can wait for a review of their token
		}
		a := s.Do(t, http.MethodPost, coreEvents, classic("web.1", 1), "Authorization", "Bearer reporter")
		equal(t, "the report", a.Code, http.StatusCreated)
		close(release)
		for _, a := range scrapes {
			equal(t, "a scrape", (<-a).Code, http.StatusOK)
		}
	})
}

// A crowd that is refused is told to come again later than one caller who has its share.
func TestCrowdComesAgainLater(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		reviewed := make(chan struct{})
		s := serve(t, written(), named, withPaths(nil, func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			<-reviewed
			return authorizer.DecisionAllow, "", nil
		}))
		post := func(user string) answer {
			return s.Do(t, http.MethodPost, coreEvents, classic("web."+user, 1), "Authorization", "Bearer "+user)
		}
		var first []<-chan answer
		for i := range 4 {
			first = append(first, background(func() answer { return post(fmt.Sprint("first-", i)) }))
			synctest.Wait()
		}
		later := 0
		for second := range 5 {
			for i := range 20 {
				a := post(fmt.Sprint("crowd-", second, "-", i))
				equal(t, "the answer to one of the crowd", a.Code, http.StatusTooManyRequests)
				if a.Header.Get("Retry-After") != "1" {
					later++
				}
			}
			again := post("first-0")
			equal(t, "the answer to one who has its share", again.Code, http.StatusTooManyRequests)
			equal(t, "its Retry-After", again.Header.Get("Retry-After"), "1")
			time.Sleep(time.Second)
		}
		if later < 20 {
			t.Errorf("%d of 100 of a crowd were told to come later than in a second", later)
		}
		close(reviewed)
		for _, a := range first {
			equal(t, "the first ones", (<-a).Code, http.StatusCreated)
		}
	})
}

// However many ask for metrics in vain, reports that find no place are not told to come later.
func TestCrowdOfQueriesDelaysNoReport(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, written(), named, withPaths(func(w http.ResponseWriter, req *http.Request) {
			<-release
			sends("eventd_up 1")(w, req)
		}, func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			<-release
			return authorizer.DecisionAllow, "", nil
		}))
		scrape := func(user string) answer {
			return s.Do(t, http.MethodGet, "/metrics", nil, "Authorization", "Bearer "+user)
		}
		post := func(user string) answer {
			return s.Do(t, http.MethodPost, coreEvents, classic("web."+user, 1), "Authorization", "Bearer "+user)
		}
		var waiting []<-chan answer
		wait := func(send func(string) answer, name string, n int) {
			for i := range n {
				waiting = append(waiting, background(func() answer { return send(fmt.Sprint(name, i)) }))
				synctest.Wait()
			}
		}
		wait(scrape, "scraper-", 64)
		later := 0
		for second := range 5 {
			for i := range 30 {
				a := scrape(fmt.Sprint("crowd-", second, "-", i))
				equal(t, "the answer to a scrape", a.Code, http.StatusTooManyRequests)
				if a.Header.Get("Retry-After") != "1" {
					later++
				}
			}
			time.Sleep(time.Second)
		}
		if later == 0 {
			t.Error("nobody of a crowd was told to come later")
		}
		wait(post, "reporter-", 4)
		for i := range 20 {
			a := post(fmt.Sprint("refused-", i))
			equal(t, "the answer to a report", a.Code, http.StatusTooManyRequests)
			equal(t, "its Retry-After", a.Header.Get("Retry-After"), "1")
		}
		close(release)
		for _, a := range waiting {
			<-a
		}
	})
}

func TestReportsWaitForTheRateOfReviews(t *testing.T) {
	for name, test := range map[string]struct {
		qps   float64
		waits time.Duration
	}{
		"the default": {0, 0},
		"low":         {1, 8 * time.Second}, // two for each report, and the first two at once
		"unlimited":   {math.Inf(1), 0},
	} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, written(), named, withServer(func(o *intake.ServerOptions) { o.AccessReviewQPS = test.qps }))
			begun := time.Now()
			var reports []<-chan answer
			for i := range 5 {
				reports = append(reports, background(func() answer {
					return s.Do(t, http.MethodPost, coreEvents, classic(fmt.Sprint("web.", i), 1), "Authorization", fmt.Sprint("Bearer reporter-", i))
				}))
			}
			for _, a := range reports {
				equal(t, "a report", (<-a).Code, http.StatusCreated)
			}
			equal(t, "the time until all are answered", time.Since(begun), test.waits)
		})
	}
}
