package frame

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsThatHangAreNotRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recent
		open := map[uint64]bool{}
		begin := func(id uint64) {
			open[id] = true
			r.Add(id)
		}
		want := func(when string, want bool) {
			t.Helper()
			if got := r.Any(func(id uint64) bool { return open[id] }); got != want {
				t.Errorf("%s: %t", when, got)
			}
		}
		want("none has begun", false)
		begin(1)
		time.Sleep(linger / 2)
		begin(2)
		want("two have begun", true)
		delete(open, 2)
		want("the first is open", true)
		begin(3)
		delete(open, 3)
		begin(4)
		delete(open, 1)
		want("the last is open", true)
		delete(open, 4)
		want("all have ended", false)
		begin(5)
		time.Sleep(linger - time.Nanosecond)
		want("one is still recent", true)
		time.Sleep(time.Nanosecond)
		want("it hangs", false)
		if len(r.begun) > 0 {
			t.Errorf("%d are kept", len(r.begun))
		}
	})
}
