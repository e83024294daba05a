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

// maxClockAge is how long after the end of a suspension a clock may not know of it yet. A
// machine may as well be suspended right after a clock was read.
const maxClockAge = time.Millisecond

// clock measures elapsed time. It reads the time since boot once per maxClockAge, since that
// is a system call: three for each report, without it. The zero value is ready for use; it
// is not safe for use by many goroutines.
type clock struct {
	read moment
}

// since returns the time since a moment that has passed.
func (c *clock) since(m moment) time.Duration {
	age := time.Since(c.read.monotonic)
	if age >= maxClockAge {
		c.read, age = now(), 0
	}
	return max(time.Since(m.monotonic), c.read.boot+age-m.boot)
}
