// Package receiver defines what delivers versions of Events to a destination.
package receiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Record is one version of an Event, for a destination.
type Record struct {
	// ID is uid/resourceVersion. Repetitions have the same one.
	ID string
	// Cluster is the name of the cluster that the Event is of.
	Cluster string
	// Event is shared and is not changed. It has no managedFields.
	Event *corev1.Event
	// Observed is when the version was read from the apiserver.
	Observed time.Time
	// Summarized is 0, unless a route throttles Events: then the record may be a summary, and this is
	// the number of versions that it stands for, its own included. They are not delivered otherwise.
	Summarized int
}

// Receiver delivers to one destination. Its methods are called by one goroutine at a time.
type Receiver interface {
	// Send delivers a batch. It returns when the destination has acknowledged all of it, and
	// returns how many of its records the destination has rejected for good. A destination must
	// not get a version of an Event before an earlier one of the same batch. An error of type
	// *Error says what to do; any other one means that the whole batch is sent again.
	Send(ctx context.Context, batch []Record) (rejected int, err error)
	// Close releases connections and files. Send is not called afterwards.
	Close() error
}

// Error is why a batch was not delivered.
type Error struct {
	// Permanent: the same batch will be refused again, because of what is in it.
	Permanent bool
	// RetryAfter is how long the destination asks to wait. 0 if it does not say.
	RetryAfter time.Duration
	// Progressed: some records were acknowledged that were not before, so another attempt may send
	// more of them.
	Progressed bool
	Err        error
}

// Progressed returns an error that is, or has in it, err, and says that a batch has progressed.
func Progressed(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		progressed := *e
		progressed.Progressed = true
		return &progressed
	}
	return &Error{Progressed: true, Err: err}
}

func (e *Error) Error() string {
	switch {
	case e.Permanent:
		return fmt.Sprintf("refused: %v", e.Err)
	case e.RetryAfter > 0:
		return fmt.Sprintf("retry after %s: %v", e.RetryAfter, e.Err)
	default:
		return e.Err.Error()
	}
}

func (e *Error) Unwrap() error { return e.Err }
