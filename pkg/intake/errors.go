package intake

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/occurrence"
)

// retryAfterSeconds is the Retry-After of errors that are over soon. While no leader is
// known, leaderless computes a longer one.
const retryAfterSeconds = 1

// notWritten is the error for a report that was not written.
func notWritten(r *report) error {
	s := r.settlement
	if errors.Is(s.Err, errTermEnded) {
		return unavailable(s.Err.Error())
	}
	if s.Outcome != occurrence.Dropped {
		why := fmt.Sprintf("the event's write was abandoned (%s): %s", s.Outcome, because(s.Err))
		if r.unnamed {
			return NotToRepeat(why)
		}
		return unavailable(why)
	}
	switch s.Reason {
	case occurrence.QueueFull, occurrence.PendingFull:
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many events are pending (%s)", s.Reason), retryAfterSeconds)
	case occurrence.NotReplicated:
		return apierrors.NewTooManyRequests("no other replica holds the event, and it was not written in time", retryAfterSeconds)
	case occurrence.BudgetSpent:
		// The budget is spent for hours. A Retry-After would delay all other Events of
		// the client's recorder.
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("too many writes of the same source about the same object are pending (%s)", s.Reason))
	case occurrence.Shutdown, occurrence.NoSink, occurrence.RetriesExhausted:
		return unavailable(fmt.Sprintf("the event was not written (%s): %s", s.Reason, because(s.Err)))
	}
	var response apierrors.APIStatus
	if !errors.As(s.Err, &response) {
		return apierrors.NewInternalError(fmt.Errorf("the event was not written (%s): %s", s.Reason, because(s.Err)))
	}
	status := response.Status()
	if status.Code == http.StatusUnauthorized {
		// This server is not authenticated, not the client.
		return unavailable("the event was not written: the apiserver does not accept this server's credentials")
	}
	return &apierrors.StatusError{ErrStatus: asRequested(status, r.occurrence.API, r.key.name)}
}

// gone reports whether a report was dropped because the stored Event no longer exists. The
// client gets 404 and posts the Event again.
func gone(s occurrence.Settlement) bool {
	var response apierrors.APIStatus
	if s.Outcome != occurrence.Dropped || !errors.As(s.Err, &response) {
		return false
	}
	status := response.Status()
	return status.Code == http.StatusNotFound && isEvent(status.Details)
}

func isEvent(d *metav1.StatusDetails) bool {
	return d != nil && d.Name != "" && strings.HasPrefix(strings.ToLower(d.Kind), "event")
}

// asRequested replaces the API and the name of a write in its status by those of the
// client's request. An Event is stored under another name, and the cached refusal of a
// namespace may be that of a write in the other API.
func asRequested(status metav1.Status, api occurrence.API, name string) metav1.Status {
	status = *status.DeepCopy()
	d := status.Details
	if !isEvent(d) {
		return status // about the namespace, for example
	}
	written := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String() + " " + strconv.Quote(d.Name)
	d.Group = api.GroupVersion().Group
	requested := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String() + " " + strconv.Quote(name)
	status.Message = strings.ReplaceAll(status.Message, written, requested)
	status.Message = strings.ReplaceAll(status.Message, strconv.Quote(d.Name), strconv.Quote(name))
	d.Name = name
	return status
}

func because(err error) string {
	if err == nil {
		return "try again"
	}
	return err.Error()
}

// NotToRepeat is the error of a create without a name that may have been recorded: 504
// without Retry-After. If the client sent it again, it would create another Event.
func NotToRepeat(why string) *apierrors.StatusError {
	return apierrors.NewTimeoutError("the event may have been recorded, and has no name to send it again under: "+why, 0)
}

func unavailable(message string) *apierrors.StatusError {
	return Unavailable(retryAfterSeconds, message)
}

// Unavailable is 503 with Retry-After.
func Unavailable(seconds int, message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	return err
}
