package election

import (
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// observation is a lock's record, and since when this process has seen it
// unchanged. The times in the record are those of another machine's wall clock:
// nothing here depends on them.
type observation struct {
	record resourcelock.LeaderElectionRecord
	raw    string
	since  time.Time
}

// holding tells whether the record names a holder.
func (o *observation) holding() bool { return o.record.HolderIdentity != "" }

// expires is when the holder's lease is over unless it is seen to be renewed. A
// record that does not say for how long it is valid is given the fallback.
func (o *observation) expires(fallback time.Duration) time.Time {
	validity := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if validity <= 0 {
		validity = fallback
	}
	return o.since.Add(validity)
}

// note compares what was read with what was seen before. It is true if that has
// changed.
func (o *observation) note(a answer, read time.Time) bool {
	if o.raw == string(a.raw) && !o.since.IsZero() {
		return false
	}
	*o = observation{record: *a.record, raw: string(a.raw), since: read}
	return true
}
