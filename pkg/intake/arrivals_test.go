package intake

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestOldestRequestInFlightHasItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests arrivals
		var all [4]arrival
		begin := func(i int) {
			requests.begin(&all[i])
			time.Sleep(time.Second)
		}
		wantOldest := func(want time.Duration) {
			t.Helper()
			if got := requests.oldest(); got != want {
				t.Errorf("the oldest is %s old, not %s", got, want)
			}
		}
		wantOldest(0)
		begin(0)
		begin(1)
		begin(2)
		wantOldest(3 * time.Second)
		requests.end(&all[1])
		wantOldest(3 * time.Second)
		requests.end(&all[2])
		begin(3)
		wantOldest(4 * time.Second)
		requests.end(&all[0])
		wantOldest(time.Second)
		requests.end(&all[3])
		wantOldest(0)
		begin(0)
		wantOldest(time.Second)
		requests.end(&all[0])
		wantOldest(0)
	})
}
