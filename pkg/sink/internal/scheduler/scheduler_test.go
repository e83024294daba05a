package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// driver drives a Scheduler with a clock of its own.
type driver struct {
	*Scheduler
	t   *testing.T
	now time.Time
}

func newDriver(t *testing.T, ceiling int) *driver {
	s := New(Options{MinConcurrency: 1, Concurrency: ceiling, SlowAnswer: time.Second, QPS: math.Inf(1), Burst: 1})
	return &driver{s, t, time.Unix(1000, 0)}
}

func (d *driver) pass(by time.Duration) { d.now = d.now.Add(by) }

// in enqueues a job that is ready after a time.
func (d *driver) in(namespace string, after time.Duration) *Job {
	j := &Job{}
	d.Enqueue(j, namespace, d.now.Add(after), d.now)
	return j
}

// enqueue enqueues jobs that are ready.
func (d *driver) enqueue(n int, namespace string) (jobs []*Job) {
	for range n {
		jobs = append(jobs, d.in(namespace, 0))
	}
	return jobs
}

// wantNext dequeues these jobs in turn, where nil is none.
func (d *driver) wantNext(want ...*Job) {
	d.t.Helper()
	for i, j := range want {
		if got := d.Dequeue(d.now); got != j {
			d.t.Errorf("dequeue %d: %p, want %p", i, got, j)
		}
	}
}

func (d *driver) wantNextIn(want time.Duration) {
	d.t.Helper()
	if _, at := d.Next(d.now); at.Sub(d.now) != want {
		d.t.Errorf("next in %v, want %v", at.Sub(d.now), want)
	}
}

// dequeueAll dequeues what has a free slot.
func (d *driver) dequeueAll() (jobs []*Job) {
	for j := d.Dequeue(d.now); j != nil; j = d.Dequeue(d.now) {
		jobs = append(jobs, j)
	}
	return jobs
}

func TestJobsWaitForTheirLatestTime(t *testing.T) {
	d := newDriver(t, 10)
	late, soon, moved := d.in("a", 5*time.Second), d.in("a", time.Second), d.in("a", 2*time.Second)
	d.wantNext(nil)
	d.Enqueue(moved, "a", d.now.Add(9*time.Second), d.now)
	d.Enqueue(late, "a", d.now.Add(4*time.Second), d.now)
	d.wantNextIn(time.Second)
	d.pass(4 * time.Second)
	d.wantNext(soon, late, nil)
	d.Enqueue(moved, "a", d.now, d.now)
	d.wantNext(moved)
}

// The owner is not woken for each postponement, only at the first time and the last.
func TestJobThatIsPostponedAgainAndAgainSleeps(t *testing.T) {
	d := newDriver(t, 10)
	j := d.in("a", time.Minute)
	for i := range 1000 {
		d.Enqueue(j, "a", d.now.Add(time.Minute+time.Duration(i)*time.Second), d.now)
		d.wantNextIn(time.Minute)
	}
	d.pass(time.Minute)
	d.wantNext(nil)
	d.wantNextIn(999 * time.Second)
	d.pass(999 * time.Second)
	d.wantNext(j)
}

func TestJobThatIsBroughtForwardIsNext(t *testing.T) {
	d := newDriver(t, 10)
	var jobs []*Job
	for i := range 10 {
		jobs = append(jobs, d.in("a", time.Duration(10+i)*time.Second))
	}
	for n, j := range []*Job{jobs[9], jobs[5], jobs[7]} {
		after := time.Duration(9-n) * time.Second
		d.Enqueue(j, "a", d.now.Add(after), d.now)
		d.wantNextIn(after)
	}
	d.pass(8 * time.Second)
	d.wantNext(jobs[7], jobs[5], nil)
}

func TestJobIsInOneWorkerAtATime(t *testing.T) {
	d := newDriver(t, 10)
	j := d.in("a", 0)
	d.wantNext(j)
	d.Enqueue(j, "a", d.now, d.now)
	d.wantNext(nil)
	d.Done(j, d.now, d.now)
	d.wantNext(j)
	d.Done(j, time.Time{}, d.now)
	d.wantNext(nil)
	if len(d.namespaces) != 0 || d.limiter.inUse != 0 {
		t.Errorf("%d namespaces and %d running are left", len(d.namespaces), d.limiter.inUse)
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	d := newDriver(t, 100)
	many, few := d.enqueue(10, "many"), d.in("few", 0)
	d.wantNext(many[0], few, many[1])
}

// In a namespace no tenant waits behind another, and a job that is removed has no turn.
func TestTenantsOfANamespaceTakeTurns(t *testing.T) {
	d := newDriver(t, 100)
	of := func(tenant string) *Job {
		j := &Job{Tenant: tenant}
		d.Enqueue(j, "a", d.now, d.now)
		return j
	}
	x1, x2, x3, x4 := of("x"), of("x"), of("x"), of("x")
	y1 := of("y")
	d.wantNext(x1, y1)
	z1, y2 := of("z"), of("y")
	d.wantNext(x2)
	d.Remove(z1, d.now)
	d.wantNext(y2, x3, x4, nil)
}

func TestNoNamespaceHasAllSlots(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(20, "stuck")
	jobs := d.dequeueAll()
	if len(jobs) != 12 {
		t.Errorf("%d of 16 are in one namespace", len(jobs))
	}
	next := d.enqueue(20, "stuck, too")
	if n := len(d.dequeueAll()); n != 3 {
		t.Errorf("%d of the 4 that are left are in the next namespace", n)
	}
	other := d.in("other", 0)
	d.wantNext(other)
	d.Done(other, time.Time{}, d.now)
	d.Done(jobs[0], time.Time{}, d.now)
	d.wantNext(nil)
	d.Done(jobs[1], time.Time{}, d.now)
	d.wantNext(next[3])
}

// Series that were not answered may use half of their namespace's slots, and
// take turns with the others.
func TestSeriesThatWereNotAnsweredLeaveSlotsForOthers(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(12, "a")
	stuck := d.dequeueAll()
	for _, j := range stuck {
		j.unanswered = true
		d.Done(j, d.now, d.now)
	}
	other := d.in("a", 0)
	d.wantNext(stuck[0], other)
	if again := d.dequeueAll(); len(again) != 5 {
		t.Errorf("%d of 16 slots are used again", 1+len(again))
	}
	d.Done(other, d.now, d.now)
	d.wantNext(other, nil)

	stuck[0].unanswered = false
	d.Done(stuck[0], d.now, d.now)
	d.wantNext(stuck[6], stuck[0], nil)
}

// Whatever happens: no more run than may, none twice, and all are served.
func TestScheduleServesAll(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newDriver(t, 1+rng.IntN(6))
		d.urgentFirst = seed%2 == 0
		pending, again := make(map[*Job]bool), make(map[*Job]bool) // again: enqueued while it ran
		jobs := make([]Job, 30)
		for i := range jobs {
			jobs[i].Urgent = i%3 == 0
		}
		var running []*Job
		for step := 0; step < 2000 || len(pending) > 0; step++ {
			if step > 100_000 {
				t.Fatalf("seed %d: %d are never served", seed, len(pending))
			}
			d.pass(time.Duration(rng.IntN(20)) * time.Millisecond)
			switch rng.IntN(4) {
			case 0:
				if step < 2000 {
					i := rng.IntN(len(jobs))
					pending[&jobs[i]], again[&jobs[i]] = true, true
					d.Enqueue(&jobs[i], fmt.Sprint(i%4), d.now.Add(time.Duration(rng.IntN(50)-10)*time.Millisecond), d.now)
				}
			case 1:
				if j := d.Dequeue(d.now); j != nil {
					if slices.Contains(running, j) {
						t.Fatalf("seed %d: a job runs twice", seed)
					}
					running = append(running, j)
					delete(pending, j)
					again[j] = false
				}
			case 2:
				if len(running) > 0 {
					i := rng.IntN(len(running))
					j := running[i]
					j.unanswered = rng.IntN(2) == 0
					var at time.Time
					if again[j] {
						at = d.now
					}
					d.Done(j, at, d.now)
					running = slices.Delete(running, i, i+1)
				}
			case 3:
				if len(running) > 0 {
					j := running[rng.IntN(len(running))]
					d.Report(j, Result{Began: d.now, Answered: true}, d.now)
					d.ReportLate(running[rng.IntN(len(running))], d.now)
				}
			}
			d.checkHanging(jobs)
			if n := len(running); n > d.limiter.size()*3/2 || n != d.limiter.inUse+d.Lent() || d.Lent() > d.limiter.size()/2 {
				t.Fatalf("seed %d: %d run, %d slots are used, %d lent", seed, n, d.limiter.inUse, d.Lent())
			}
		}
	}
}

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
