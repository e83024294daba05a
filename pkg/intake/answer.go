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

// retryAfterSeconds is what every answer suggests that can be had a moment later. Of
// a leader that is missing for longer leaderless says when.
const retryAfterSeconds = 1

// refusal is the answer to a report that was not written.
func refusal(r *report) error {
	s := r.settlement
	if errors.Is(s.Err, errTurnedAway) {
		return unavailable(s.Err.Error())
	}
	if s.Outcome != occurrence.Dropped {
		why := fmt.Sprintf("the event's write was given up (%s): %s", s.Outcome, because(s.Err))
		if r.unnamed {
			return notToRepeat(why)
		}
		return unavailable(why)
	}
	switch s.Reason {
	case occurrence.QueueFull, occurrence.PendingFull:
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many events are pending (%s)", s.Reason), retryAfterSeconds)
	case occurrence.BudgetSpent:
		// Without Retry-After, which holds up all that its recorder has behind it:
		// the budget is spent for hours.
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("too many writes of the same source about the same object are pending (%s)", s.Reason))
	case occurrence.Shutdown, occurrence.NoSink, occurrence.RetriesExhausted:
		return unavailable(fmt.Sprintf("the event was not written (%s): %s", s.Reason, because(s.Err)))
	}
	var answered apierrors.APIStatus
	if !errors.As(s.Err, &answered) {
		return apierrors.NewInternalError(fmt.Errorf("the event was not written (%s): %s", s.Reason, because(s.Err)))
	}
	status := answered.Status()
	if status.Code == http.StatusUnauthorized {
		// It was this server that was not known, not the client.
		return unavailable("the event was not written: the apiserver does not accept this server's credentials")
	}
	return &apierrors.StatusError{ErrStatus: asAsked(status, r.occurrence.API, r.key.name)}
}

// gone tells whether the stored Event was no longer there for a report that
// would only have changed it. The client is told 404 and posts it anew.
func gone(s occurrence.Settlement) bool {
	var answered apierrors.APIStatus
	if s.Outcome != occurrence.Dropped || !errors.As(s.Err, &answered) {
		return false
	}
	status := answered.Status()
	return status.Code == http.StatusNotFound && isEvent(status.Details)
}

func isEvent(d *metav1.StatusDetails) bool {
	return d != nil && d.Name != "" && strings.HasPrefix(strings.ToLower(d.Kind), "event")
}

// asAsked puts the API and the name that a client posted in place of those of the
// write. The name that the Event is stored under is none of the client's business,
// and a refusal of the whole namespace may be the answer to a write of the other API.
func asAsked(status metav1.Status, api occurrence.API, name string) metav1.Status {
	status = *status.DeepCopy()
	d := status.Details
	if !isEvent(d) {
		return status // for instance about the namespace
	}
	written := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String() + " " + strconv.Quote(d.Name)
	d.Group = api.GroupVersion().Group
	asked := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String() + " " + strconv.Quote(name)
	status.Message = strings.ReplaceAll(status.Message, written, asked)
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

// notToRepeat is the answer to a create of an Event without a name that may have
// been recorded: 504 without Retry-After. Sent again it would be another Event.
func notToRepeat(why string) *apierrors.StatusError {
	return apierrors.NewTimeoutError("the event may have been recorded, and has no name to send it again under: "+why, 0)
}

// unavailable is 503 with Retry-After.
func unavailable(message string) *apierrors.StatusError {
	return unavailableFor(retryAfterSeconds, message)
}

func unavailableFor(seconds int, message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	return err
}
