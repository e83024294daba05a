package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// maxAttempts is how often a query is sent at most.
	maxAttempts = 5
	// maxWait bounds what Retry-After asks for.
	maxWait = 10 * time.Second
	// leaderWait is the pause before the Lease is read again, while it names no holder.
	leaderWait = time.Second
)

// What errors of a connection wrap, beside that of a kube-apiserver if there is one.
var (
	// ErrNoLease is that eventd is not installed, or elsewhere.
	ErrNoLease = errors.New("there is no Lease")
	// ErrNoLeader is that the Lease names no holder, as for moments at a handover. What wraps it names the Lease:
	// it may be that of another installation.
	ErrNoLeader = errors.New("no eventd leads at the moment")
	// ErrReadingLease is of the kube-apiserver.
	ErrReadingLease = errors.New("reading eventd's Lease")
	// ErrConnecting is that the leader is known, and cannot be reached.
	ErrConnecting = errors.New("connecting to eventd")
)

// errLate ends a query to one of a Pair that the other has answered.
var errLate = fmt.Errorf("no answer within %s of that of the other role", patience)

// answerError makes the error of an answer that is not 200, as client-go does. eventd itself gives no rights to resources
// of its own group: it forbids those that it does not serve.
func (c *Client) answerError(resp *http.Response, resource string) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		if status.Code == 0 {
			status.Code = int32(resp.StatusCode)
		}
		if c.dialer != nil && status.Reason == metav1.StatusReasonForbidden && status.Details != nil && status.Details.Group == c.group {
			status.Code, status.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
		}
		if seconds > 0 {
			if status.Details == nil {
				status.Details = &metav1.StatusDetails{}
			}
			status.Details.RetryAfterSeconds = int32(seconds)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	group := schema.GroupResource{Group: v1alpha1.GroupName, Resource: resource}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "get", group, "", string(text), seconds, true)
}

// askAgain reports whether a query is to be sent once more, and after what time.
func askAgain(err error) (time.Duration, bool) {
	if errors.Is(err, ErrNoLeader) {
		return leaderWait, true
	}
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok || seconds <= 0 {
		return 0, false
	}
	return min(time.Duration(seconds)*time.Second, maxWait), true
}

// passes reports whether an error may be over when a watch is opened again: all that is no refusal.
func passes(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true // no answer
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// awaitsLeader reports whether an error says that there is no leader at the moment: the Lease names none, or one
// that has ended, or eventd says so.
func awaitsLeader(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, errSilent) || errors.Is(err, syscall.ECONNREFUSED) || apierrors.IsServiceUnavailable(err)
}

// isLost reports whether eventd no longer has what comes after a cursor.
func isLost(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }
