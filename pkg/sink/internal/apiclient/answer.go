package apiclient

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Verb is what a request does. Its values are metric labels.
type Verb string

// The verbs.
const (
	VerbCreate Verb = "create"
	VerbPatch  Verb = "patch"
	// VerbRead is an empty patch: it returns the object and writes nothing, so it needs
	// no right beside that to patch.
	VerbRead Verb = "read"
	// VerbGet and VerbUpdate replace VerbRead and VerbPatch where patches are forbidden.
	VerbGet    Verb = "get"
	VerbUpdate Verb = "update"
)

// IsRead reports whether the verb changes nothing.
func (v Verb) IsRead() bool { return v == VerbRead || v == VerbGet }

// SuccessCode is the HTTP status code of success.
func (v Verb) SuccessCode() int {
	if v == VerbCreate {
		return http.StatusCreated
	}
	return http.StatusOK
}

// Class is what an answer means for the write. Its values are metric labels.
type Class string

// The classes.
const (
	ClassOK          Class = "ok"
	ClassExists      Class = "exists"      // AlreadyExists or Conflict: read, and plan again
	ClassNotFound    Class = "gone"        // the Event, not its namespace
	ClassRefused     Class = "refused"     // permanent; but see Answer.Denied
	ClassRetry       Class = "retry"       // it did not take effect, and may later
	ClassLost        Class = "lost"        // it may have taken effect
	ClassUnreachable Class = "unreachable" // there is no connection to the apiserver
)

const (
	// tooLarge is part of the apiserver's message, with a 500, for an object that is
	// too large for etcd.
	tooLarge = "etcdserver: request is too large"
	// notReady is the end of the apiserver's message, with a 403, before its caches of
	// namespaces and admission policies are filled
	// (apiserver/pkg/admission/plugin/namespace/lifecycle, among others). It answers
	// after 10 s, so with the default request timeout nobody receives it.
	notReady = "not yet ready to handle request"
	// deniedByRBAC is part of the apiserver's message for a request that no rule allows.
	deniedByRBAC = ` resource "events" in API group `
)

// ErrNoAnswer is the error of a client that returned neither an Event nor an error.
var ErrNoAnswer = errors.New("there is no answer")

// Answer is a classified answer.
type Answer struct {
	Verb   Verb // of the request: an update reads first, and may end there
	Class  Class
	Reason occurrence.Reason // of ClassRefused
	// Denied: RBAC refused. An apiserver also answers so before it has read its rules.
	Denied     bool
	RetryAfter time.Duration // as the apiserver suggests
	Code       int           // HTTP status, 0 if there was none
	Began      time.Time     // of the request; Classify leaves it to the caller
	Took       time.Duration // from then on; the same
	Unsent     bool          // there was no request, so this says nothing about the apiserver
	Object     *corev1.Event
	Err        error
}

// Classify returns what the answer to a request means.
//
//	409                                      exists
//	404 of the Event                         gone
//	404 of a namespace or to a create,       refused, with a reason
//	403, 400, 413, 422, too large for etcd
//	401, 429, 403 since it is not ready      retry
//	no URL can be made                       refused, as invalid
//	no connection                            unreachable
//	the same, while another one works        retry
//	408, 5xx, timeout, broken connection     lost
func Classify(v Verb, object *corev1.Event, err error) Answer {
	switch {
	case err == nil && object != nil:
		return Answer{Verb: v, Class: ClassOK, Code: v.SuccessCode(), Object: object}
	case err == nil:
		err = ErrNoAnswer
	}
	a := Answer{Verb: v, Err: err}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		a.Class = classifyTransport(err)
		_, a.Unsent = errors.AsType[*UnsentError](err)
		if a.Class == ClassRefused {
			a.Reason = occurrence.Invalid
		}
		return a
	}
	s := status.Status()
	a.Code = int(s.Code)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case a.Code == http.StatusConflict:
		a.Class = ClassExists
	case a.Code == http.StatusNotFound && v != VerbCreate && !isNamespace(s.Details):
		a.Class = ClassNotFound
	case a.Code == http.StatusUnauthorized, a.Code == http.StatusTooManyRequests,
		a.Code == http.StatusForbidden && strings.HasSuffix(s.Message, notReady):
		a.Class = ClassRetry
	case strings.Contains(s.Message, tooLarge):
		a.Class, a.Reason = ClassRefused, occurrence.Invalid
	case a.Code == http.StatusRequestTimeout, a.Code >= 500:
		a.Class = ClassLost
	default:
		a.Class, a.Reason = ClassRefused, refusalReason(err, &s)
		a.Denied = a.Reason == occurrence.Forbidden && strings.Contains(s.Message, deniedByRBAC)
	}
	return a
}

func classifyTransport(err error) Class {
	if _, ok := errors.AsType[*sentError](err); ok {
		return ClassLost
	}
	if u, ok := errors.AsType[*UnsentError](err); ok {
		return u.Class
	}
	if IsDial(err) {
		return ClassUnreachable
	}
	return ClassLost
}

// IsDial reports whether no connection could be made. The error of a dial through a proxy wraps
// that of the dial to the proxy.
func IsDial(err error) bool {
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Op == "dial" {
			return true
		}
	}
	return false
}

func isNamespace(details *metav1.StatusDetails) bool {
	return details != nil && details.Kind == "namespaces"
}

func refusalReason(err error, s *metav1.Status) occurrence.Reason {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return occurrence.NamespaceTerminating
	case s.Code == http.StatusNotFound && isNamespace(s.Details):
		return occurrence.NamespaceNotFound
	case s.Code == http.StatusForbidden:
		return occurrence.Forbidden
	case s.Code == http.StatusBadRequest, s.Code == http.StatusUnprocessableEntity, s.Code == http.StatusRequestEntityTooLarge:
		return occurrence.Invalid
	default:
		return occurrence.Refused
	}
}
