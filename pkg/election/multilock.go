package election

import (
	"bytes"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// MultiLock is a lock over two, with which an election moves from one Lease to
// another: first all electors use the old Lease, then a rollout has them use
// both, the old one being Primary, and another one the new Lease only. Only who
// holds both leads.
//
// It is what client-go's MultiLock is for, with two differences. The second lock
// is written under optimistic concurrency as well; client-go's reads it anew
// right before, and so overwrites whoever has just acquired it. And two holders
// that differ are left alone for the longer of their two durations; client-go's
// takes the first one's, which after its release is a second.
type MultiLock struct {
	Primary, Secondary resourcelock.Interface

	// missing tells, by the last Get, which of the two there is not.
	missing [2]bool
	// holders are whom the two named then.
	holders [2]string
}

func (l *MultiLock) locks() [2]resourcelock.Interface {
	return [2]resourcelock.Interface{l.Primary, l.Secondary}
}

// Get returns the record on which both agree. If they do not, the holder is
// resourcelock.UnknownLeader. It is NotFound if both are.
func (l *MultiLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var combined *resourcelock.LeaderElectionRecord
	var raws [2][]byte
	var missing error
	for i, lock := range l.locks() {
		record, raw, err := lock.Get(ctx)
		l.missing[i], l.holders[i] = apierrors.IsNotFound(err), ""
		switch {
		case l.missing[i]:
			missing = err
		case err != nil:
			return nil, nil, err
		default:
			combined, raws[i], l.holders[i] = combine(combined, record), raw, record.HolderIdentity
		}
	}
	if combined == nil {
		return nil, nil, missing
	}
	return combined, bytes.Join(raws[:], []byte{','}), nil
}

// combine adds a second record to the first one, if there is one.
func combine(first, second *resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord {
	if first == nil {
		return second
	}
	combined := *first
	if first.HolderIdentity != second.HolderIdentity {
		combined.HolderIdentity = resourcelock.UnknownLeader
	}
	combined.LeaseDurationSeconds = max(first.LeaseDurationSeconds, second.LeaseDurationSeconds)
	combined.LeaderTransitions = max(first.LeaderTransitions, second.LeaderTransitions)
	return &combined
}

// Create creates both.
func (l *MultiLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.missing, l.holders = [2]bool{true, true}, [2]string{}
	return l.Update(ctx, record)
}

// Update writes both as they were last read, the primary first.
func (l *MultiLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func(string) bool { return true })
}

// release writes a record without a holder to those that name this process, or
// nobody: one of the two may be somebody else's by then.
func (l *MultiLock) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func(holder string) bool { return holder == "" || holder == l.Identity() })
}

// write writes the record to those of the two whose holder it is to replace.
func (l *MultiLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, replaces func(holder string) bool) error {
	for i, lock := range l.locks() {
		if !replaces(l.holders[i]) {
			continue
		}
		write := lock.Update
		if l.missing[i] {
			write = lock.Create
		}
		if err := write(ctx, record); err != nil {
			return err
		}
		l.missing[i], l.holders[i] = false, record.HolderIdentity
	}
	return nil
}

// names tells whether a lock whose record was just read names its own process: of
// two, whether one does, since a write of both may have got half way.
func names(lock resourcelock.Interface, record *resourcelock.LeaderElectionRecord) bool {
	if l, ok := lock.(*MultiLock); ok {
		return slices.Contains(l.holders[:], l.Identity())
	}
	return record.HolderIdentity == lock.Identity()
}

// RecordEvent records it for both.
func (l *MultiLock) RecordEvent(event string) {
	for _, lock := range l.locks() {
		lock.RecordEvent(event)
	}
}

// Identity is that of the primary.
func (l *MultiLock) Identity() string { return l.Primary.Identity() }

// Describe is the description of the primary.
func (l *MultiLock) Describe() string { return l.Primary.Describe() }

// Announced is what the holder said in the first of the two that holds it.
func (l *MultiLock) Announced() Announcement {
	said := []Announcement{announced(l.Primary), announced(l.Secondary)}
	if i := slices.IndexFunc(said, func(a Announcement) bool { return a != Announcement{} }); i >= 0 {
		return said[i]
	}
	return Announcement{}
}

// optimistic returns a lock that overwrites nothing that it has not read.
func optimistic(lock resourcelock.Interface) resourcelock.Interface {
	if l, ok := lock.(*resourcelock.MultiLock); ok {
		return &MultiLock{Primary: optimistic(l.Primary), Secondary: optimistic(l.Secondary)}
	}
	return lock
}
