package remote

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// failure is what the error of a whole batch means.
type failure struct {
	err        error
	inDoubt    bool // it may have had an effect
	forbidden  bool
	tooLarge   bool
	retryAfter time.Duration
}

// classify returns what the error of a Client means.
//
//	413                                    too large
//	403                                    forbidden
//	no connection, other 4xx               no effect; sent again
//	5xx, timeout, broken connection        in doubt; sent again
//
// An answer 4xx to a whole batch that is none of these is sent again too: it is from a server that
// knows no batches, such as a replica of an older release that still leads.
func classify(err error) failure {
	f := failure{err: err}
	if _, ok := errors.AsType[*UnsentError](err); ok {
		return f
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		f.inDoubt = true
		return f
	}
	f.retryAfter = retryAfterOf(status.ErrStatus.Details)
	switch code := status.ErrStatus.Code; {
	case code == http.StatusRequestEntityTooLarge:
		f.tooLarge = true
	case code == http.StatusForbidden:
		f.forbidden = true
	case code == http.StatusRequestTimeout || code < 400 || code >= 500:
		f.inDoubt = true
	}
	return f
}

// itemOutcome is what the answer to one Event means.
type itemOutcome struct {
	acknowledged bool
	refused      occurrence.Reason // if it is not sent again
	inDoubt      bool
	retryAfter   time.Duration
	err          error
}

// outcomeOf returns what the answer to one Event means.
//
//	2xx                                    acknowledged
//	409: eventd knows the name             acknowledged: by an earlier attempt
//	401, 408, 429                          sent again
//	5xx                                    sent again; in doubt
//	other 4xx                              refused
func outcomeOf(status *metav1.Status) itemOutcome {
	code := status.Code
	if code >= 200 && code < 300 || code == http.StatusConflict {
		return itemOutcome{acknowledged: true}
	}
	o := itemOutcome{err: &apierrors.StatusError{ErrStatus: *status}, retryAfter: retryAfterOf(status.Details)}
	switch {
	case code == http.StatusUnauthorized || code == http.StatusTooManyRequests:
	case code == http.StatusRequestTimeout || code < 400 || code >= 500:
		o.inDoubt = true
	case code == http.StatusForbidden && apierrors.HasStatusCause(o.err, corev1.NamespaceTerminatingCause):
		o.refused = occurrence.NamespaceTerminating
	case code == http.StatusForbidden:
		o.refused = occurrence.Forbidden
	case code == http.StatusNotFound:
		o.refused = occurrence.NamespaceNotFound
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity || code == http.StatusRequestEntityTooLarge:
		o.refused = occurrence.Invalid
	default:
		o.refused = occurrence.Refused
	}
	return o
}

func retryAfterOf(d *metav1.StatusDetails) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(d.RetryAfterSeconds) * time.Second
}

// codeLabel limits the label to codes of HTTP.
func codeLabel(code int32) string {
	if code < 100 || code > 599 {
		return "0"
	}
	return strconv.Itoa(int(code))
}
