package intake

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allowed allows requests for one namespace.
func allowed(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetNamespace() == "ns" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "not there", nil
}

func creating(name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "jane"}, Verb: "create", Namespace: "ns", Resource: "events", APIVersion: "v1", Name: name,
		ResourceRequest: true,
	}
}

type result struct {
	decision authorizer.Decision
	reason   string
	err      error
}

// asking starts one call.
func asking(shared Authorizer, ctx context.Context, a authorizer.Attributes) <-chan result {
	out := make(chan result, 1)
	go func() {
		d, reason, err := shared.Authorize(ctx, a)
		out <- result{d, reason, err}
	}()
	return out
}

// sharing returns a shared authorizer for one that answers after a second and has no
// cache, and counts its calls.
func sharing(most int, answer authorizer.AuthorizerFunc) (shared *sharedAuthorizer, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	slow := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked.Add(1)
		select {
		case <-time.After(time.Second):
			return answer(ctx, a)
		case <-ctx.Done():
			return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
		}
	})
	return must(newSharedAuthorizer(slow, accessReviews(DefaultAccessReviewQPS), most, -1, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}))), asked
}

func TestSameReviewIsMadeOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, asked := sharing(10, allowed)
		elsewhere := creating("a")
		elsewhere.Namespace = "elsewhere"
		for range 2 {
			var same []<-chan result
			for range 100 {
				same = append(same, asking(shared, t.Context(), creating("a")))
			}
			other := <-asking(shared, t.Context(), elsewhere)
			equal(t, "another one", other, result{authorizer.DecisionDeny, "not there", nil})
			for _, one := range same {
				equal(t, "the same one", <-one, result{authorizer.DecisionAllow, "", nil})
			}
			equal(t, "reviews", asked.Swap(0), 2)
		}
	})
}

// The watches of a user share the review of a right. One that depends on selectors is shared with none.
func TestReviewsOfReadsAreShared(t *testing.T) {
	for name, test := range map[string]struct {
		selectors fields.Requirements
		reviews   int64
	}{
		"a right":                      {nil, 1},
		"one that has field selectors": {make(fields.Requirements, 1), 21},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared, asked := sharing(10, allowed)
				list := creating("")
				list.Verb, list.FieldSelectorRequirements = "list", test.selectors
				var same []<-chan result
				for range 21 {
					same = append(same, asking(shared, t.Context(), list))
				}
				for _, one := range same {
					equal(t, "the answer", <-one, result{authorizer.DecisionAllow, "", nil})
				}
				equal(t, "reviews", asked.Load(), test.reviews)
			})
		})
	}
}

// A user whose watches need more reviews than there may be delays the reviews of another one by a few.
func TestReviewsOfManyWatchesDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
		shared := must(newSharedAuthorizer(quick, queryReviews, maxQueries+maxWatches, reviewTTL, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})))
		equal(t, "answering before the first review", shared.answering(), false)
		list := func(who, namespace string) authorizer.AttributesRecord {
			a := creating("")
			a.User, a.Verb, a.Namespace = &user.DefaultInfo{Name: who}, "list", namespace
			return a
		}
		ctx, leave := context.WithCancel(t.Context())
		var watches sync.WaitGroup
		for w := range 21 { // each of 20 namespaces, again and again: 84 reviews per second
			watches.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					_, _, _ = shared.Authorize(ctx, list("flood", fmt.Sprint(w, "-", i)))
				}
			})
		}
		for range 10 {
			time.Sleep(reviewTTL)
			began := time.Now()
			equal(t, "the other is allowed", (<-asking(shared, t.Context(), list("other", "ns"))).decision, authorizer.DecisionAllow)
			if waited := time.Since(began); waited > 200*time.Millisecond { // behind all others: 400
				t.Errorf("the review of another user has waited for %s", waited)
			}
		}
		equal(t, "answering", shared.answering(), true)
		leave()
		watches.Wait()
		time.Sleep(answeringTime + time.Second) // the last reviews outlive their requests
		equal(t, "answering later", shared.answering(), false)
	})
}

// A review does not end with its request, since other requests share it.
func TestReviewOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, asked := sharing(1, allowed)
		hasty, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		began := time.Now()
		first := asking(shared, hasty, creating("a"))
		synctest.Wait()
		second := asking(shared, t.Context(), creating("a"))
		equal(t, "the first one", <-first, result{authorizer.DecisionNoOpinion, "", context.DeadlineExceeded})
		equal(t, "it waited", time.Since(began), time.Millisecond)
		equal(t, "the second one", <-second, result{authorizer.DecisionAllow, "", nil})
		equal(t, "it waited", time.Since(began), time.Second)
		equal(t, "reviews", asked.Load(), 1)
	})
}

func TestFewReviewsOutliveTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		var answered atomic.Int64
		shared, _ := sharing(most, func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			answered.Add(1)
			return allowed(ctx, a)
		})
		hasty, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		for i := range 100 {
			asking(shared, hasty, creating(fmt.Sprint(i)))
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		// One of the first may be refused, because the queue has the same limit.
		left := shared.running.Load()
		if left == 0 || left > most {
			t.Errorf("%d of 100 reviews outlive their requests, want at most %d", left, most)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "reviews that are running", shared.running.Load(), 0)
		equal(t, "reviews that have ended", answered.Load(), left)
	})
}

// A decision is in the cache of the authorizer since its review began, unless it depends
// on selectors or has too long attributes. Any other review waits for the rate limit, or
// is refused.
func TestDecisionsThatAreNotCachedAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
		shared := must(newSharedAuthorizer(authorizer.AuthorizerFunc(allowed), accessReviews(DefaultAccessReviewQPS), 10, time.Second, refused))
		cached := func(a authorizer.Attributes) bool {
			return time.Since(shared.decisions.get(a, attributesKey(a)).begun) < time.Second
		}
		plain, byField, byLabel, long := creating("a"), creating("a"), creating("a"), creating("a")
		byField.FieldSelectorRequirements = make(fields.Requirements, 1)
		byLabel.LabelSelectorRequirements = make(labels.Requirements, 1)
		long.Path = strings.Repeat("x", maxCachedKey)
		shared.reviews.rate.ReserveN(time.Now(), 2*DefaultAccessReviewQPS)
		shared.reviews.rate.ReserveN(time.Now(), DefaultAccessReviewQPS)
		for i, a := range []authorizer.Attributes{plain, byField, byLabel, long} {
			equal(t, "result", <-asking(shared, t.Context(), a), result{authorizer.DecisionAllow, "", nil})
			equal(t, fmt.Sprintf("%+v is cached", a), cached(a), i == 0)
		}
		time.Sleep(time.Second - 3*time.Second/DefaultAccessReviewQPS) // the others waited for the rest
		equal(t, "cached after its time", cached(plain), false)
		shared.reviews.rate.SetBurst(0)
		equal(t, "too late", (<-asking(shared, t.Context(), plain)).err, errReviews)
		equal(t, "counted", testutil.ToFloat64(refused), 1)
	})
}

// An apiserver that has just started denies what it allows as soon as it has read all roles.
func TestDenialOfWhatWasAllowedIsReviewedAgain(t *testing.T) {
	const no, deny, allow = authorizer.DecisionNoOpinion, authorizer.DecisionDeny, authorizer.DecisionAllow
	type step struct {
		after        time.Duration
		answer, want authorizer.Decision
		doubtful     bool
	}
	for name, steps := range map[string][]step{
		"never allowed":     {{0, no, no, false}},
		"allowed again":     {{0, allow, allow, false}, {0, no, no, true}, {doubtTime - 1, allow, no, true}, {1, allow, allow, false}, {0, no, no, true}},
		"confirmed":         {{0, allow, allow, false}, {0, no, no, true}, {doubtTime, no, no, false}, {0, no, no, false}, {0, allow, allow, false}},
		"denied by a rule":  {{0, allow, allow, false}, {0, deny, deny, false}, {0, no, no, false}},
		"denied, then rule": {{0, allow, allow, false}, {0, no, no, true}, {doubtTime, deny, deny, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var answer authorizer.Decision
				reviews := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					return answer, "", nil
				})
				shared := must(newSharedAuthorizer(reviews, accessReviews(DefaultAccessReviewQPS), 10, -1, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})))
				for i, s := range steps {
					time.Sleep(s.after)
					answer = s.answer
					got := <-asking(shared, t.Context(), creating(""))
					if got.decision != s.want || (got.err == errDoubtful) != s.doubtful {
						t.Errorf("step %d: %+v", i, got)
					}
					if err := authorize(t.Context(), shared, creating("")); s.doubtful && !apierrors.IsServiceUnavailable(err) {
						t.Errorf("step %d: the response is %v", i, err)
					}
				}
			})
		})
	}
}

// cachedReviews is an authorizer with the cache of the webhook authorizer, in which a decision lives from when
// its review has ended. It is not safe for concurrent use.
type cachedReviews struct {
	takes, ttl time.Duration
	last       authorizer.Decision
	until      time.Time
	withdrawn  bool
	calls      int
}

func (c *cachedReviews) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if c.calls++; time.Now().Before(c.until) {
		return c.last, "", nil
	}
	c.last = authorizer.DecisionAllow
	if c.withdrawn {
		c.last = authorizer.DecisionNoOpinion
	}
	time.Sleep(c.takes)
	c.until = time.Now().Add(c.ttl)
	return c.last, "", nil
}

// A decision from the cache of the authorizer is not kept for as long again: a right that is withdrawn ends with
// the cache, whenever requests are made.
func TestRightThatIsWithdrawnEndsWithTheCache(t *testing.T) {
	for _, takes := range []time.Duration{0, 5 * time.Millisecond, time.Second} {
		bubble(t, takes.String(), func(t *testing.T) {
			reviews := &cachedReviews{takes: takes, ttl: 10 * time.Second}
			shared := must(newSharedAuthorizer(reviews, accessReviews(DefaultAccessReviewQPS), 10, reviews.ttl, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})))
			equal(t, "at first", (<-asking(shared, t.Context(), creating(""))).decision, authorizer.DecisionAllow)
			reviews.withdrawn = true
			begun, requests := time.Now(), 0
			for ; (<-asking(shared, t.Context(), creating(""))).decision == authorizer.DecisionAllow; requests++ {
				time.Sleep(time.Millisecond)
			}
			if lasted := time.Since(begun); lasted > reviews.ttl+reviews.ttl/repeatPart+2*takes+time.Millisecond {
				t.Errorf("the right has lasted for %v", lasted)
			}
			if reviews.calls > requests/10 {
				t.Errorf("the authorizer was called %d times for %d requests", reviews.calls, requests)
			}
		})
	}
}

func TestReviewEndsSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never, _ := sharing(10, func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			<-ctx.Done()
			return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
		})
		began := time.Now()
		got := <-asking(never, t.Context(), creating("a"))
		equal(t, "result", got, result{authorizer.DecisionNoOpinion, "", context.DeadlineExceeded})
		equal(t, "it waited", time.Since(began), sharedReviewTimeout)
	})
}

func TestPanicOfAReviewIsThatOfAllWhoShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, _ := sharing(10, func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			panic("broken")
		})
		var all sync.WaitGroup
		defer all.Wait()
		for range 3 {
			all.Go(func() {
				defer func() { equal[any](t, "panic", recover(), "broken") }()
				d, _, err := shared.Authorize(t.Context(), creating("a"))
				t.Errorf("%v, %v", d, err)
			})
		}
	})
}

func TestAttributesHaveKeysOfTheirOwn(t *testing.T) {
	type attributes struct {
		authorizer.AttributesRecord
		user.DefaultInfo
	}
	keyOf := func(change func(*attributes)) string {
		a := attributes{creating("a"), user.DefaultInfo{
			Name: "jane", UID: "1", Groups: []string{"a", "b"},
			Extra: map[string][]string{"x": {"y", "z"}, "w": {"v"}},
		}}
		change(&a)
		if a.User != nil {
			a.User = &a.DefaultInfo
		}
		return string(attributesKey(a.AttributesRecord))
	}
	seen := map[string]string{}
	for what, change := range map[string]func(*attributes){
		"unchanged":       func(*attributes) {},
		"user":            func(a *attributes) { a.DefaultInfo.Name = "joe" },
		"uid":             func(a *attributes) { a.UID = "2" },
		"groups":          func(a *attributes) { a.Groups = []string{"a,b"} },
		"groups and name": func(a *attributes) { a.Groups = []string{"a"} },
		"extra":           func(a *attributes) { a.Extra["x"] = []string{"y"} },
		"name of extra":   func(a *attributes) { a.Extra = map[string][]string{"x": {"y", "z"}, "q": {"v"}} },
		"nobody":          func(a *attributes) { a.User = nil },
		"verb":            func(a *attributes) { a.Verb = "patch" },
		"group":           func(a *attributes) { a.APIGroup = "events.k8s.io" },
		"version":         func(a *attributes) { a.APIVersion = "v2" },
		"resource":        func(a *attributes) { a.Resource = "pods" },
		"subresource":     func(a *attributes) { a.Subresource = "status" },
		"namespace":       func(a *attributes) { a.Namespace = "n" },
		"object":          func(a *attributes) { a.AttributesRecord.Name = "b" },
		"no object":       func(a *attributes) { a.AttributesRecord.Name = "" },
		"path":            func(a *attributes) { a.Path = "/metrics" },
		"user and uid":    func(a *attributes) { a.DefaultInfo.Name, a.UID = "jan", "e1" },
		"extra as groups": func(a *attributes) { a.Groups, a.Extra = []string{"a", "b", "w", "x", "v", "y", "z"}, nil },
	} {
		key := keyOf(change)
		equal(t, what+": the key again", keyOf(change), key)
		if other, known := seen[key]; known {
			t.Errorf("%s has the same key as %s", what, other)
		}
		seen[key] = what
	}
}
