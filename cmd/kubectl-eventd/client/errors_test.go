package client_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
)

// A server chooses when it is asked again, but holds nobody up for longer than maxWait.
func TestRetryAfterIsBounded(t *testing.T) {
	for _, test := range []struct {
		err  error
		want time.Duration
	}{
		{apierrors.NewTooManyRequests("later", 1), time.Second},
		{apierrors.NewTooManyRequests("later", 10), 10 * time.Second},
		{apierrors.NewTooManyRequests("tomorrow", 86400), 10 * time.Second},
		{apierrors.NewTooManyRequests("at once", 0), 0},
		{apierrors.NewTooManyRequests("before", -1), 0},
		{errors.New("no answer"), 0},
	} {
		if wait, again := client.AskAgain(test.err); wait != test.want || again != (test.want > 0) {
			t.Errorf("%v: asked again: %v, after %s; want %s", test.err, again, wait, test.want)
		}
	}
}
