package election

import (
	"bytes"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// MultiLock is a lock over two locks. It moves an election from one Lease to another:
// one rollout changes all electors from the old Lease to both, with the old one as
// Primary, and the next one to the new Lease. Only the holder of both leads.
//
// It replaces client-go's MultiLock, with two differences. The second lock is
// written under optimistic concurrency too: client-go's reads it again just before
// the write, and so overwrites a new holder. Two different holders are respected for
// the longer of their durations: client-go's uses the first one's, which is one
// second after its release.
type MultiLock struct {
	Primary, Secondary resourcelock.Interface

	// By the last Get: which lock does not exist, and which holder each names.
	missing [2]bool
	holders [2]string
}

func (l *MultiLock) locks() [2]resourcelock.Interface {
	return [2]resourcelock.Interface{l.Primary, l.Secondary}
}

// Get returns a record for both locks. If they name different holders, its holder is
// resourcelock.UnknownLeader. It returns NotFound if both do.
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

// combine returns a record for two locks. first may be nil.
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

// Create creates both locks.
func (l *MultiLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.missing, l.holders = [2]bool{true, true}, [2]string{}
	return l.Update(ctx, record)
}

// Update writes both locks, the primary first. A lock that Get did not find is
// created.
func (l *MultiLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func(string) bool { return true })
}

// release writes a record without a holder to the locks that name this process or
// nobody. Another process may hold one of the two.
func (l *MultiLock) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, func(holder string) bool { return holder == "" || holder == l.Identity() })
}

// write writes the record to the locks whose holder it replaces.
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

// names reports whether the record just read from lock names this process. For a
// MultiLock, one lock is enough, since a write of both may have failed half-way.
func names(lock resourcelock.Interface, record *resourcelock.LeaderElectionRecord) bool {
	if l, ok := lock.(*MultiLock); ok {
		return slices.Contains(l.holders[:], l.Identity())
	}
	return record.HolderIdentity == lock.Identity()
}

// RecordEvent records an Event through both locks.
func (l *MultiLock) RecordEvent(event string) {
	for _, lock := range l.locks() {
		lock.RecordEvent(event)
	}
}

// Identity returns that of the primary.
func (l *MultiLock) Identity() string { return l.Primary.Identity() }

// Describe returns the description of the primary.
func (l *MultiLock) Describe() string { return l.Primary.Describe() }

// Announced returns the announcement in the first lock that has one.
func (l *MultiLock) Announced() Announcement {
	announcements := []Announcement{announced(l.Primary), announced(l.Secondary)}
	if i := slices.IndexFunc(announcements, func(a Announcement) bool { return a != Announcement{} }); i >= 0 {
		return announcements[i]
	}
	return Announcement{}
}

// optimistic returns a lock that refuses to overwrite a record that it has not read.
func optimistic(lock resourcelock.Interface) resourcelock.Interface {
	if l, ok := lock.(*resourcelock.MultiLock); ok {
		return &MultiLock{Primary: optimistic(l.Primary), Secondary: optimistic(l.Secondary)}
	}
	return lock
}
