package election

import (
	"testing"
	"testing/synctest"
	"time"
)

// A clock that has been read notices a suspension a millisecond later.
func TestClockNoticesASuspensionThatItHasNotReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		before := now()
		c.since(before)
		c.read.boot -= time.Minute // as if the machine had been suspended since
		before.boot -= time.Minute
		if d := c.since(before); d >= time.Minute {
			t.Errorf("the time since boot is read again at once: %s", d)
		}
		time.Sleep(maxClockAge)
		if d := c.since(before); d < time.Minute {
			t.Errorf("the suspended minute is not noticed: %s", d)
		}
	})
}
