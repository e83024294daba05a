package remote

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

func TestWhatTheErrorOfABatchMeans(t *testing.T) {
	for _, test := range []struct {
		err  error
		want failure
	}{
		{&UnsentError{errors.New("refused")}, failure{}},
		{fmt.Errorf("wrapped: %w", &UnsentError{errors.New("refused")}), failure{}},
		{errors.New("reset"), failure{inDoubt: true}},
		{statusError(201, 0), failure{inDoubt: true}},
		{statusError(302, 0), failure{inDoubt: true}},
		{statusError(399, 0), failure{inDoubt: true}},
		{statusError(400, 0), failure{}},
		{statusError(401, 0), failure{}},
		{statusError(403, 2), failure{forbidden: true, retryAfter: 2 * time.Second}},
		{statusError(404, 0), failure{}},
		{statusError(408, 0), failure{inDoubt: true}},
		{statusError(413, 0), failure{tooLarge: true}},
		{statusError(429, 7), failure{retryAfter: 7 * time.Second}},
		{statusError(499, 0), failure{}},
		{statusError(500, 0), failure{inDoubt: true}},
		{statusError(503, 1), failure{inDoubt: true, retryAfter: time.Second}},
		{&apierrors.StatusError{ErrStatus: status(504)}, failure{inDoubt: true}},
	} {
		test.want.err = test.err
		if got := classify(test.err); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestWhatTheAnswerToAnEventMeans(t *testing.T) {
	terminating := status(403)
	terminating.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
	after := status(429)
	after.Details = &metav1.StatusDetails{RetryAfterSeconds: 7}
	for _, test := range []struct {
		status metav1.Status
		want   itemOutcome
	}{
		{status(200), itemOutcome{acknowledged: true}},
		{status(201), itemOutcome{acknowledged: true}},
		{status(202), itemOutcome{acknowledged: true}},
		{status(299), itemOutcome{acknowledged: true}},
		{status(409), itemOutcome{acknowledged: true}}, // by an earlier attempt
		{status(199), itemOutcome{inDoubt: true}},
		{status(300), itemOutcome{inDoubt: true}},
		{status(400), itemOutcome{refused: occurrence.Invalid}},
		{status(401), itemOutcome{}},
		{status(403), itemOutcome{refused: occurrence.Forbidden}},
		{terminating, itemOutcome{refused: occurrence.NamespaceTerminating}},
		{status(404), itemOutcome{refused: occurrence.NamespaceNotFound}},
		{status(405), itemOutcome{refused: occurrence.Refused}},
		{status(408), itemOutcome{inDoubt: true}},
		{status(413), itemOutcome{refused: occurrence.Invalid}},
		{status(422), itemOutcome{refused: occurrence.Invalid}},
		{after, itemOutcome{retryAfter: 7 * time.Second}},
		{status(499), itemOutcome{refused: occurrence.Refused}},
		{status(500), itemOutcome{inDoubt: true}},
		{status(503), itemOutcome{inDoubt: true}},
	} {
		got := outcomeOf(&test.status)
		if (got.err == nil) != test.want.acknowledged {
			t.Errorf("%d: %v", test.status.Code, got.err)
		}
		if got.err = nil; got != test.want {
			t.Errorf("%+v: %+v, want %+v", test.status, got, test.want)
		}
	}
}

// A server cannot make labels as it likes.
func TestLabelsAreCodesOfHTTP(t *testing.T) {
	for code, want := range map[int32]string{-1: "0", 0: "0", 99: "0", 100: "100", 201: "201", 599: "599", 600: "0"} {
		if got := codeLabel(code); got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
}
