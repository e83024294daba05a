package intake

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOldestRequestInFlightHasItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a arrivals
		wantOldest := func(want time.Duration) {
			t.Helper()
			if got := a.oldest(); got != want {
				t.Errorf("the oldest is %s old, not %s", got, want)
			}
		}
		wantOldest(0)
		first := a.begin()
		time.Sleep(time.Second)
		second := a.begin()
		time.Sleep(time.Second)
		third := a.begin()
		time.Sleep(time.Second)
		wantOldest(3 * time.Second)
		second()
		wantOldest(3 * time.Second)
		first()
		wantOldest(time.Second)
		third()
		wantOldest(0)
	})
}
