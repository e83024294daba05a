package sink

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

// class is what an answer means for the write. Its values are metric labels.
type class string

const (
	classOK       class = "ok"
	classExists   class = "exists"  // AlreadyExists or a conflict: read, plan again
	classNotFound class = "gone"    // the Event, not its namespace
	classRefused  class = "refused" // nothing changes that by itself; but see mayChange
	classNotTaken class = "retry"   // it did not take effect and may later
	classLost     class = "lost"    // it may have taken effect
	// classUnreachable: the apiserver is not there to be asked.
	classUnreachable class = "unreachable"
)

// tooLarge is what the apiserver says, with a 500, of an object that etcd does
// not take.
const tooLarge = "etcdserver: request is too large"

// notReady is how the apiserver ends what it says, with a 403, while it does not
// know the namespaces or the admission policies yet
// (apiserver/pkg/admission/plugin/namespace/lifecycle, among others). It has
// waited for 10 s by then, so with the default time for a request nobody hears it.
const notReady = "not yet ready to handle request"

// deniedByRBAC is part of what the apiserver says of a request that no rule
// allows.
const deniedByRBAC = ` resource "events" in API group `

// errNoAnswer is for a client that returns neither an Event nor an error.
var errNoAnswer = errors.New("there is no answer")

// answer is a classified answer.
type answer struct {
	verb   verb // what was done: an update reads first, and may end there
	class  class
	reason occurrence.Reason // of a refusal
	// mayChange: it was RBAC that refused. An apiserver says that, too, in its
	// first moments.
	mayChange bool
	after     time.Duration // the server asks to wait this long
	code      int           // HTTP status, 0 if there was none
	began     time.Time     // when it was asked
	took      time.Duration // from then on
	unsent    bool          // it was not: this says nothing of the apiserver
	object    *corev1.Event
	err       error
}

// classify is the one place that knows what the apiserver's answers mean.
//
//	409                                      read and plan again
//	404 of the Event                         it expired: create it
//	404 of a namespace or to a create,       refused, with a reason
//	403, 400, 413, 422, too large for etcd
//	401, 429, 403 since it is not ready      not taken: try again later
//	no request can be made of it             refused, as invalid
//	connection not made, never left          all wait until the apiserver is there
//	the same, while there is another one     not taken: try again later
//	408, 5xx, time-out, broken connection    lost: the write may have happened
func classify(v verb, object *corev1.Event, err error) answer {
	switch {
	case err == nil && object != nil:
		return answer{verb: v, class: classOK, code: v.success(), object: object}
	case err == nil:
		err = errNoAnswer
	}
	a := answer{verb: v, err: err}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		a.class = classifyTransport(err)
		_, a.unsent = errors.AsType[*unsent](err)
		if a.class == classRefused {
			a.reason = occurrence.Invalid
		}
		return a
	}
	s := status.Status()
	a.code = int(s.Code)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.after = time.Duration(seconds) * time.Second
	}
	switch {
	case a.code == http.StatusConflict:
		a.class = classExists
	case a.code == http.StatusNotFound && v != verbCreate && !isNamespace(s.Details):
		a.class = classNotFound
	case a.code == http.StatusUnauthorized, a.code == http.StatusTooManyRequests,
		a.code == http.StatusForbidden && strings.HasSuffix(s.Message, notReady):
		a.class = classNotTaken
	case strings.Contains(s.Message, tooLarge):
		a.class, a.reason = classRefused, occurrence.Invalid
	case a.code == http.StatusRequestTimeout, a.code >= 500:
		a.class = classLost
	default:
		a.class, a.reason = classRefused, refusalReason(err, &s)
		a.mayChange = a.reason == occurrence.Forbidden && strings.Contains(s.Message, deniedByRBAC)
	}
	return a
}

func classifyTransport(err error) class {
	if _, ok := errors.AsType[*sent](err); ok {
		return classLost
	}
	if u, ok := errors.AsType[*unsent](err); ok {
		return u.class
	}
	// A dial to the apiserver stands within one to its proxy.
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Op == "dial" {
			return classUnreachable
		}
	}
	return classLost
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
