package election

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot includes the time while the machine was suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // before Linux 2.6.39
	}
	return time.Duration(t.Nano())
}
