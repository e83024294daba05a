package query

import (
	"context"
	"errors"
	"testing"
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
		if denied, err := r.review(t.Context()); denied != test.denied || !errors.Is(err, test.err) {
			t.Errorf("%v: denied %v, %v", test.namespaces, denied, err)
		}
	}
}
