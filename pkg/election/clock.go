package election

import "time"

// moment is a point in time that the time since can be measured from, whatever
// happens to the wall clock.
//
// The monotonic clock goes on while a process is stopped, but on Linux, as Go
// reads it, not while the machine is suspended. The time since boot includes
// that. So the longer of the two is what has passed; where there is no such
// clock, a suspended machine is not noticed before its leader's next renewal.
type moment struct {
	monotonic time.Time
	boot      time.Duration
}

func now() moment { return moment{monotonic: time.Now(), boot: sinceBoot()} }

// elapsed is how long ago the moment was.
func (m moment) elapsed() time.Duration {
	return max(time.Since(m.monotonic), sinceBoot()-m.boot)
}
