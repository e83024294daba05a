package query

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The reviews of one namespace are over their limit, and another one is denied.
func TestAReviewThatFailsHidesNoDenial(t *testing.T) {
	busy, forbidden := errors.New("too many reviews"), errors.New("forbidden")
	answers := map[string]error{"busy": busy, "forbidden": forbidden}
	r := rights{watch: true, authorize: func(_ context.Context, _, namespace string) (denied bool, err error) {
		return namespace == "forbidden", answers[namespace]
	}}
	for _, test := range []struct {
		namespaces []string
		denied     bool
		err        error
	}{
		{[]string{"busy", "forbidden"}, true, forbidden},
		{[]string{"busy", "open"}, false, busy},
		{[]string{"open"}, false, nil},
	} {
		r.namespaces = test.namespaces
		if denied, err := r.review(t.Context(), nil); denied != test.denied || !errors.Is(err, test.err) {
			t.Errorf("%v: denied %v, %v", test.namespaces, denied, err)
		}
	}
}

// A watch of three namespaces: the reviews of one of them fail from some time on.
func TestHowLongAWatchLastsWithoutReviews(t *testing.T) {
	busy, forbidden := errors.New("too many reviews"), errors.New("forbidden")
	fails := func(context.Context) (bool, error) { return false, busy }
	hangs := func(ctx context.Context) (bool, error) {
		<-ctx.Done()
		return false, context.Cause(ctx)
	}
	for name, test := range map[string]struct {
		answer    func(context.Context) (bool, error)
		answering bool
		atLeast   time.Duration
		atMost    time.Duration // 0 if the watch lasts
	}{
		"denied":                     {func(context.Context) (bool, error) { return true, forbidden }, true, 0, reviewPeriod},
		"too many reviews":           {fails, true, maxUnreviewed, maxUnreviewed + reviewPeriod},
		"reviews that wait":          {hangs, true, maxUnreviewed, maxUnreviewed + reviewTimeout + reviewPeriod},
		"no apiserver":               {fails, false, 0, 0},
		"an apiserver that hangs":    {hangs, false, 0, 0},
		"allowed":                    {func(context.Context) (bool, error) { return false, nil }, true, 0, 0},
		"allowed, once in 8 seconds": {everySeconds(8), true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithTimeout(t.Context(), 10*time.Minute)
				defer leave()
				r := rights{namespaces: []string{"a", "b", "c"}, watch: true, answering: func() bool { return test.answering },
					authorize: func(ctx context.Context, verb, namespace string) (bool, error) {
						if namespace == "b" && verb == "watch" {
							return test.answer(ctx)
						}
						return false, nil
					}}
				began := time.Now()
				err := r.follow(ctx)
				lasted := time.Since(began)
				if ended := ctx.Err() == nil; ended != (test.atMost > 0) || ended != (err != nil) {
					t.Fatalf("it lasted %s: %v", lasted, err)
				}
				if test.atMost > 0 && (lasted < test.atLeast || lasted > test.atMost) {
					t.Errorf("it lasted %s, want %s to %s", lasted, test.atLeast, test.atMost)
				}
			})
		})
	}
}

// everySeconds returns reviews that fail, but for one in so many seconds.
func everySeconds(n int) func(context.Context) (bool, error) {
	var last time.Time
	return func(context.Context) (bool, error) {
		if time.Since(last) < time.Duration(n)*time.Second {
			return false, errors.New("too many reviews")
		}
		last = time.Now()
		return false, nil
	}
}
