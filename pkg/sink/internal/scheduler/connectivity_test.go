package scheduler

import (
	"testing"
	"time"
)

// The breaker opens with the first request without a connection, allows one job for each
// pause, and closes with a request begun since. Requests that were not sent and requests
// begun before change nothing.
func TestUnreachableApiserverIsProbedUntilItAnswers(t *testing.T) {
	d := newDriver(t, 10)
	wantOverdue := func(now time.Time, long time.Duration, want time.Time) {
		t.Helper()
		if got := d.OverdueBefore(now, long); !got.Equal(want) {
			t.Errorf("deadlines before %v are overdue, want %v", got, want)
		}
	}
	d.enqueue(3, "a")
	running := d.Dequeue(d.now)
	before := d.now
	d.pass(time.Second)
	d.Report(running, Result{Began: d.now, Unreachable: true}, d.now)
	d.wantNext(nil)
	d.Report(running, Result{Began: d.now, Unsent: true}, d.now)
	d.Report(running, Result{Began: before, Answered: true}, d.now)
	d.wantNext(nil)
	wantOverdue(d.now, 0, time.Time{})

	d.pass(minPause)
	probe := d.Dequeue(d.now)
	if probe == nil {
		t.Fatal("there is no probe after the pause")
	}
	d.RequestSent(d.now)
	d.wantNext(nil)
	d.Report(probe, Result{Began: d.now, Answered: true}, d.now)
	if d.Dequeue(d.now) == nil {
		t.Error("jobs still wait, though a probe was answered")
	}
	wantOverdue(d.now, time.Minute, time.Time{})
	wantOverdue(d.now.Add(time.Hour), time.Minute, d.now.Add(59*time.Minute))
}
