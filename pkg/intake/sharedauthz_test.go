package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// slowAuthorizer decides after a second, and counts its calls.
type slowAuthorizer struct {
	asked  atomic.Int64
	answer func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
}

func (s *slowAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	s.asked.Add(1)
	select {
	case <-time.After(time.Second):
		return s.answer(ctx, a)
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
	}
}

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

// asking starts one call, and returns a function that waits for its result.
func asking(t *testing.T, shared authorizer.Authorizer, ctx context.Context, a authorizer.Attributes) (answer func() (authorizer.Decision, string, error)) {
	t.Helper()
	var d authorizer.Decision
	var reason string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, reason, err = shared.Authorize(ctx, a)
	}()
	return func() (authorizer.Decision, string, error) {
		<-done
		return d, reason, err
	}
}

// sharing returns a shared authorizer for one without a cache.
func sharing(t *testing.T, authz authorizer.Authorizer, most int) *sharedAuthorizer {
	t.Helper()
	shared, err := newSharedAuthorizer(authz, most, -1, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}))
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func TestSameReviewIsMadeOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowAuthorizer{answer: allowed}
		shared := sharing(t, slow, 10)
		elsewhere := creating("a")
		elsewhere.Namespace = "elsewhere"
		for round := range 2 {
			for range 100 {
				answer := asking(t, shared, t.Context(), creating("a"))
				defer func() {
					if d, _, err := answer(); d != authorizer.DecisionAllow || err != nil {
						t.Errorf("round %d: %v, %v", round, d, err)
					}
				}()
			}
			if d, reason, err := asking(t, shared, t.Context(), elsewhere)(); d != authorizer.DecisionDeny || reason != "not there" || err != nil {
				t.Errorf("another one: %v, %q, %v", d, reason, err)
			}
			synctest.Wait()
			if n := slow.asked.Swap(0); n != 2 {
				t.Errorf("round %d: asked %d times, want 2", round, n)
			}
		}
	})
}

// A review does not end with its request, since other requests share it.
func TestReviewOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowAuthorizer{answer: allowed}
		shared := sharing(t, slow, 10)
		hasty, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		began := time.Now()
		first := asking(t, shared, hasty, creating("a"))
		synctest.Wait()
		second := asking(t, shared, t.Context(), creating("a"))
		if _, _, err := first(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Millisecond {
			t.Errorf("the first one has gone after %s: %v", time.Since(began), err)
		}
		if d, _, err := second(); d != authorizer.DecisionAllow || err != nil || time.Since(began) != time.Second {
			t.Errorf("the second one after %s: %v, %v", time.Since(began), d, err)
		}
		if n := slow.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestFewReviewsOutliveTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		var answered atomic.Int64
		slow := &slowAuthorizer{answer: func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			answered.Add(1)
			return allowed(ctx, a)
		}}
		shared := sharing(t, slow, most)
		hasty, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		for i := range 100 {
			asking(t, shared, hasty, creating(fmt.Sprint(i)))
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
		if n := shared.running.Load(); n != 0 || answered.Load() != left {
			t.Errorf("%d reviews are running, and %d have ended", n, answered.Load())
		}
	})
}

func TestReviewEndsSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := &slowAuthorizer{answer: func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			<-ctx.Done()
			return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
		}}
		began := time.Now()
		d, _, err := sharing(t, never, 10).Authorize(t.Context(), creating("a"))
		if d != authorizer.DecisionNoOpinion || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != sharedReviewTimeout {
			t.Errorf("after %s: %v, %v", time.Since(began), d, err)
		}
	})
}

func TestPanicOfAReviewIsThatOfAllWhoShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := sharing(t, &slowAuthorizer{answer: func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			panic("broken")
		}}, 10)
		var all sync.WaitGroup
		defer all.Wait()
		for range 3 {
			all.Go(func() {
				defer func() {
					if p := recover(); p != "broken" {
						t.Errorf("panicked with %v", p)
					}
				}()
				d, _, err := shared.Authorize(t.Context(), creating("a"))
				t.Errorf("%v, %v", d, err)
			})
		}
	})
}

func TestAttributesHaveKeysOfTheirOwn(t *testing.T) {
	is := func(change func(*authorizer.AttributesRecord, *user.DefaultInfo)) authorizer.AttributesRecord {
		a, u := creating("a"), &user.DefaultInfo{Name: "jane", UID: "1", Groups: []string{"a", "b"}, Extra: map[string][]string{"x": {"y", "z"}, "w": {"v"}}}
		a.User = u
		change(&a, u)
		return a
	}
	none := func(*authorizer.AttributesRecord, *user.DefaultInfo) {}
	seen := map[string]string{attributesKey(is(none)): "none"}
	if _, same := seen[attributesKey(is(none))]; !same {
		t.Error("the same attributes have two keys")
	}
	for what, change := range map[string]func(*authorizer.AttributesRecord, *user.DefaultInfo){
		"user":            func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Name = "joe" },
		"uid":             func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.UID = "2" },
		"groups":          func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Groups = []string{"a,b"} },
		"groups and name": func(a *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Groups = []string{"a"} },
		"extra":           func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Extra["x"] = []string{"y"} },
		"name of extra": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) {
			u.Extra = map[string][]string{"x": {"y", "z"}, "q": {"v"}}
		},
		"nobody":      func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.User = nil },
		"verb":        func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Verb = "patch" },
		"group":       func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIGroup = "events.k8s.io" },
		"version":     func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIVersion = "v2" },
		"resource":    func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Resource = "pods" },
		"subresource": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Subresource = "status" },
		"namespace":   func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Namespace = "n" },
		"object":      func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Name = "b" },
		"no object":   func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Name = "" },
		"path":        func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Path = "/metrics" },
	} {
		q := attributesKey(is(change))
		if other, known := seen[q]; known {
			t.Errorf("%s has the same key as %s", what, other)
		}
		seen[q] = what
	}
}
