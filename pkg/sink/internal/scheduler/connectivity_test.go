package scheduler

import (
	"testing"
	"time"
)

// The breaker opens with the first request without a connection, allows one job for each
// pause, and closes with a request begun since. Requests that were not sent and requests
// begun before change nothing.
func TestUnreachableApiserverIsProbedUntilItAnswers(t *testing.T) {
	d := newDesk(t, 10)
	for range 3 {
		d.in("a", 0)
	}
	running := d.Dequeue(d.now)
	before := d.now
	d.now = d.now.Add(time.Second)
	d.Report(running, Result{Began: d.now, Unreachable: true}, d.now)
	d.wantNext(nil)
	d.Report(running, Result{Began: d.now, Unsent: true}, d.now)
	d.Report(running, Result{Began: before, Answered: true}, d.now)
	d.wantNext(nil)
	if got := d.OverdueBefore(d.now, 0); !got.IsZero() {
		t.Errorf("deadlines before %v are overdue while the apiserver is unreachable", got)
	}

	d.now = d.now.Add(minPause)
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
	if got := d.OverdueBefore(d.now, time.Minute); !got.IsZero() {
		t.Errorf("deadlines before %v are overdue as soon as the apiserver is reachable", got)
	}
	if got, want := d.OverdueBefore(d.now.Add(time.Hour), time.Minute), d.now.Add(59*time.Minute); !got.Equal(want) {
		t.Errorf("deadlines before %v are overdue, want %v", got, want)
	}
}
