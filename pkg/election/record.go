package election

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// isConflict reports whether another write came first.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// isRejected reports whether nothing was written for certain. After any other error
// the write is in doubt.
func isRejected(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// write replaces a record by one that names this process as the holder. It returns
// when it began.
func (e *Elector) write(ctx context.Context, previous resourcelock.LeaderElectionRecord, call func(context.Context, resourcelock.LeaderElectionRecord) answer) (moment, error) {
	at := metav1.NewTime(time.Now())
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity:       e.identity,
		LeaseDurationSeconds: int(e.options.LeaseDuration / time.Second),
		AcquireTime:          previous.AcquireTime,
		RenewTime:            at,
		LeaderTransitions:    previous.LeaderTransitions,
		Strategy:             previous.Strategy,
		PreferredHolder:      previous.PreferredHolder,
	}
	if previous.HolderIdentity != e.identity {
		record.AcquireTime = at
	}
	e.mayHold = true
	start := now()
	a := call(ctx, record)
	switch {
	case a.err == nil:
		e.held, e.unread, e.inDoubt = record, false, false
		e.setTenure(&record)
		e.setPublished(a.announced)
	case !isRejected(a.err):
		e.inDoubt = true
	}
	return start, a.err
}

func (e *Elector) setPublished(a Announcement) {
	e.published = a
	if e.Leading() {
		e.setLeader(Leader{Identity: e.identity, Announcement: a})
	}
}

// read reads the record and updates what is known of the leader.
func (e *Elector) read(ctx context.Context) answer {
	a := e.calls.get(ctx)
	e.unread = a.err != nil
	if e.unread {
		return a
	}
	e.setTenure(a.record)
	if e.observed.update(a, time.Now()) {
		since := e.observed.since
		e.renewed.Store(&since)
		e.inDoubt = false
		e.setHolder(a)
	}
	e.mayHold = a.named || e.inDoubt
	return a
}

// setHolder sets the leader to the holder of a record. Whether this process leads is
// decided by its term instead.
func (e *Elector) setHolder(a answer) {
	switch a.record.HolderIdentity {
	case e.identity:
	case "":
		e.setLeader(Leader{})
	default:
		e.setLeader(Leader{Identity: a.record.HolderIdentity, Announcement: a.announced})
	}
}

// observation is a lock's record, and since when this process has seen it unchanged.
// The times in the record come from the wall clock of another machine and are not
// used.
type observation struct {
	record resourcelock.LeaderElectionRecord
	raw    string
	since  time.Time
}

// expires returns when the holder's lease expires unless it is renewed. The duration
// is the record's, or else fallback.
func (o *observation) expires(fallback time.Duration) time.Time {
	validity := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if validity <= 0 {
		validity = fallback
	}
	return o.since.Add(validity)
}

// update replaces the observation if the record has changed, and reports whether it
// has.
func (o *observation) update(a answer, read time.Time) bool {
	if o.raw == string(a.raw) && !o.since.IsZero() {
		return false
	}
	*o = observation{record: *a.record, raw: string(a.raw), since: read}
	return true
}
