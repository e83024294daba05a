package election

import "time"

// moment is a point in time for measuring elapsed time, independent of the wall
// clock.
//
// The monotonic clock continues while a process is stopped. On Linux, as Go reads
// it, it stops while the machine is suspended, but the time since boot does not. So
// elapsed time is the longer of the two. Without a clock since boot, a leader
// notices a suspended machine at its next renewal.
type moment struct {
	monotonic time.Time
	boot      time.Duration
}

func now() moment { return moment{monotonic: time.Now(), boot: sinceBoot()} }

func (m moment) elapsed() time.Duration {
	return max(time.Since(m.monotonic), sinceBoot()-m.boot)
}
