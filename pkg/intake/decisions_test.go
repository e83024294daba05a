package intake

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	noOpinion = authorizer.DecisionNoOpinion
	deny      = authorizer.DecisionDeny
	allow     = authorizer.DecisionAllow
)

// answers is an authorizer without a cache. It is not safe for concurrent use.
type answers struct {
	decision authorizer.Decision
	err      error
	takes    time.Duration
	calls    int
}

func (a *answers) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	a.calls++
	time.Sleep(a.takes)
	return a.decision, "", a.err
}

// decidedFor is a ttl of which a tenth is a whole number of seconds.
const decidedFor = 10 * time.Second

func deciding(of Authorizer) *sharedAuthorizer {
	return must(newSharedAuthorizer(of, accessReviews(DefaultAccessReviewQPS), 10, decidedFor, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})))
}

// The authorizer is not called again for what it has just allowed. It is for all else: for what it has denied,
// whatever it has allowed before, and after an error, which is no denial.
func TestOnlyWhatWasJustAllowedIsAllowedAgain(t *testing.T) {
	type step struct {
		after, takes time.Duration
		answer       authorizer.Decision
		err          error
		want         authorizer.Decision
		called       bool
	}
	broken := errors.New("no answer")
	const part = decidedFor / repeatPart
	for name, steps := range map[string][]step{
		"allowed": {
			{answer: allow, want: allow, called: true},
			{after: part - 1, answer: deny, want: allow},
			{after: 1, answer: deny, want: deny, called: true},
			{answer: deny, want: deny, called: true},
		},
		"allowed slowly": {
			{takes: part, answer: allow, want: allow, called: true},
			{answer: allow, want: allow, called: true},
			{answer: deny, want: allow},
		},
		"allowed from the cache": {
			{answer: allow, want: allow, called: true},
			{after: part, takes: part, answer: allow, want: allow, called: true},
			{answer: deny, want: deny, called: true},
		},
		"denied by a rule": {
			{answer: deny, want: deny, called: true},
			{answer: deny, want: deny, called: true},
		},
		"denied": {
			{answer: noOpinion, want: noOpinion, called: true},
			{answer: noOpinion, want: noOpinion, called: true},
		},
		"an error": {
			{answer: allow, want: allow, called: true},
			{after: decidedFor, answer: noOpinion, err: broken, want: noOpinion, called: true},
			{answer: allow, want: allow, called: true},
		},
	} {
		bubble(t, name, func(t *testing.T) {
			of := &answers{}
			shared := deciding(of)
			for i, s := range steps {
				time.Sleep(s.after)
				of.decision, of.err, of.takes, of.calls = s.answer, s.err, s.takes, 0
				got := <-asking(shared, t.Context(), creating(""))
				if got.decision != s.want || (of.calls == 1) != s.called || !errors.Is(got.err, s.err) {
					t.Errorf("step %d: %+v after %d calls, want %v", i, got, of.calls, s)
				}
			}
		})
	}
}

// What is allowed with some attributes says nothing of others: they are reviewed, and their denial is no doubt. That
// holds for attributes that are too long for the cache, too.
func TestDecisionIsOfItsAttributesOnly(t *testing.T) {
	long := strings.Repeat("x", maxCachedKey)
	for name, test := range map[string]struct {
		allowed, other func(*authorizer.AttributesRecord)
	}{
		"another object":    {other: func(a *authorizer.AttributesRecord) { a.Name = "b" }},
		"another namespace": {other: func(a *authorizer.AttributesRecord) { a.Namespace = "nt" }},
		"another verb":      {other: func(a *authorizer.AttributesRecord) { a.Verb = "patch" }},
		"another user of a long name": {
			func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: long[:100] + "a"} },
			func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: long[:100] + "b"} },
		},
		"too long": {
			func(a *authorizer.AttributesRecord) { a.Path = long + "a" },
			func(a *authorizer.AttributesRecord) { a.Path = long + "b" },
		},
		"selectors": {
			func(a *authorizer.AttributesRecord) { a.FieldSelectorRequirements = make(fields.Requirements, 1) },
			func(a *authorizer.AttributesRecord) { a.FieldSelectorRequirements = make(fields.Requirements, 2) },
		},
	} {
		bubble(t, name, func(t *testing.T) {
			of := &answers{decision: allow}
			shared := deciding(of)
			one, other := creating("a"), creating("a")
			if test.allowed != nil {
				test.allowed(&one)
			}
			test.other(&other)
			equal(t, "the one", <-asking(shared, t.Context(), one), result{decision: allow})
			of.decision = noOpinion
			equal(t, "the other", <-asking(shared, t.Context(), other), result{decision: noOpinion})
			equal(t, "calls", of.calls, 2)
		})
	}
}

// The cache of the authorizer keeps a decision from the end of its review. So the decision is certainly cached for
// its time to live from the begin of the review.
func TestDecisionIsKnownToBeCachedSinceItsReviewBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, begun := deciding(&answers{decision: allow, takes: 3 * time.Second}), time.Now()
		<-asking(shared, t.Context(), creating(""))
		a := creating("")
		equal(t, "in the cache since", shared.decisions.get(a, attributesKey(a)).begun, begun)
	})
}
