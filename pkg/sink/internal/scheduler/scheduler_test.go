package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// desk drives a schedule with a clock of its own.
type desk struct {
	*Scheduler
	t   *testing.T
	now time.Time
}

func newDesk(t *testing.T, ceiling int) *desk {
	return &desk{Scheduler: New(Options{MinConcurrency: 1, Concurrency: ceiling, SlowAnswer: time.Second, QPS: math.Inf(1), Burst: 1}), t: t, now: time.Unix(1000, 0)}
}

func (d *desk) nextAt() time.Time {
	_, at := d.Next(d.now)
	return at
}

func (d *desk) in(namespace string, after time.Duration) *Job {
	j := &Job{}
	d.Enqueue(j, namespace, d.now.Add(after), d.now)
	return j
}

func (d *desk) of(tenant string) *Job {
	j := &Job{Tenant: tenant}
	d.Enqueue(j, "a", d.now, d.now)
	return j
}

func (d *desk) wantNext(want *Job) {
	d.t.Helper()
	if got := d.Dequeue(d.now); got != want {
		d.t.Errorf("took %p, want %p", got, want)
	}
}

func TestJobsWaitForTheirTimeWhateverWasSaidBefore(t *testing.T) {
	d := newDesk(t, 10)
	late, soon, moved := d.in("a", 5*time.Second), d.in("a", time.Second), d.in("a", 2*time.Second)
	d.wantNext(nil)
	d.Enqueue(moved, "a", d.now.Add(9*time.Second), d.now)
	d.Enqueue(late, "a", d.now.Add(4*time.Second), d.now)
	if got := d.nextAt().Sub(d.now); got != time.Second {
		t.Errorf("next in %v", got)
	}
	d.now = d.now.Add(4 * time.Second)
	d.wantNext(soon)
	d.wantNext(late)
	d.wantNext(nil)
	d.Enqueue(moved, "a", d.now, d.now)
	d.wantNext(moved)
}

// Of many that wait, the one that is brought forward is the next.
func TestJobThatIsBroughtForwardIsNext(t *testing.T) {
	d := newDesk(t, 10)
	var jobs []*Job
	for i := range 10 {
		jobs = append(jobs, d.in("a", time.Duration(10+i)*time.Second))
	}
	for n, j := range []*Job{jobs[9], jobs[5], jobs[7]} {
		at := d.now.Add(time.Duration(9-n) * time.Second)
		d.Enqueue(j, "a", at, d.now)
		if got := d.nextAt(); !got.Equal(at) {
			t.Errorf("next in %v, want %v", got.Sub(d.now), at.Sub(d.now))
		}
	}
	d.now = d.now.Add(8 * time.Second)
	d.wantNext(jobs[7])
	d.wantNext(jobs[5])
	d.wantNext(nil)
}

func TestJobIsInOneWorkerAtATime(t *testing.T) {
	d := newDesk(t, 10)
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
	d := newDesk(t, 100)
	var many []*Job
	for range 10 {
		many = append(many, d.in("many", 0))
	}
	few := d.in("few", 0)
	d.wantNext(many[0])
	d.wantNext(few)
	d.wantNext(many[1])
}

// takeAll takes what has a free slot.
func (d *desk) takeAll() (taken []*Job) {
	for j := d.Dequeue(d.now); j != nil; j = d.Dequeue(d.now) {
		taken = append(taken, j)
	}
	return taken
}

func TestNoNamespaceHasAllTheRoom(t *testing.T) {
	d := newDesk(t, 16)
	var more []*Job
	for range 20 {
		d.in("stuck", 0)
	}
	jobs := d.takeAll()
	if len(jobs) != 12 {
		t.Errorf("%d of 16 are in one namespace", len(jobs))
	}
	for range 20 {
		more = append(more, d.in("stuck, too", 0))
	}
	if more := d.takeAll(); len(more) != 3 {
		t.Errorf("%d of the 4 that are left are in the next namespace", len(more))
	}
	other := d.in("other", 0)
	d.wantNext(other)
	d.Done(other, time.Time{}, d.now)
	d.Done(jobs[0], time.Time{}, d.now)
	d.wantNext(nil)
	d.Done(jobs[1], time.Time{}, d.now)
	d.wantNext(more[3])
}

// Series that were not answered may have half of their namespace's slots, and
// take turns with the others.
func TestSeriesThatWereNotAnsweredLeaveRoomForOthers(t *testing.T) {
	d := newDesk(t, 16)
	for range 12 {
		d.in("a", 0)
	}
	stuck := d.takeAll()
	for _, j := range stuck {
		j.unanswered = true
		d.Done(j, d.now, d.now)
	}
	other := d.in("a", 0)
	d.wantNext(stuck[0])
	d.wantNext(other)
	if again := d.takeAll(); len(again) != 5 {
		t.Errorf("%d of 16 slots are taken again", 1+len(again))
	}
	d.Done(other, d.now, d.now)
	d.wantNext(other)
	d.wantNext(nil)

	stuck[0].unanswered = false
	d.Done(stuck[0], d.now, d.now)
	d.wantNext(stuck[6])
	d.wantNext(stuck[0])
	d.wantNext(nil)
}

// Whatever happens: as many run as may, none twice, and all are served.
func TestScheduleServesAll(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(t, 1+rng.IntN(6))
		pending := make(map[*Job]int)
		namespaceOf := make(map[*Job]string)
		again := make(map[*Job]bool) // put while it ran
		var jobs, running []*Job
		for i := range 30 {
			j := &Job{}
			jobs = append(jobs, j)
			namespaceOf[j] = fmt.Sprint(i % 4)
		}
		for step := 0; step < 2000 || len(pending) > 0; step++ {
			if step > 100_000 {
				t.Fatalf("seed %d: %d are never served", seed, len(pending))
			}
			d.now = d.now.Add(time.Duration(rng.IntN(20)) * time.Millisecond)
			switch rng.IntN(3) {
			case 0:
				if step < 2000 {
					j := jobs[rng.IntN(len(jobs))]
					pending[j]++
					again[j] = true
					d.Enqueue(j, namespaceOf[j], d.now.Add(time.Duration(rng.IntN(50)-10)*time.Millisecond), d.now)
				}
			case 1:
				if j := d.Dequeue(d.now); j != nil {
					for _, other := range running {
						if other == j {
							t.Fatalf("seed %d: a job runs twice", seed)
						}
					}
					running = append(running, j)
					delete(pending, j)
					again[j] = false
				}
			case 2:
				if len(running) > 0 {
					i := rng.IntN(len(running))
					running[i].unanswered = rng.IntN(2) == 0
					var at time.Time
					if again[running[i]] {
						at = d.now
					}
					d.Done(running[i], at, d.now)
					running = append(running[:i], running[i+1:]...)
				}
			}
			if len(running) > d.limiter.size() {
				t.Fatalf("seed %d: %d run", seed, len(running))
			}
		}
	}
}

// In a namespace none waits behind another tenant's; what is dropped is nobody's turn.
func TestTenantsOfANamespaceTakeTurns(t *testing.T) {
	d := newDesk(t, 100)
	x1, x2, x3, x4 := d.of("x"), d.of("x"), d.of("x"), d.of("x")
	y1 := d.of("y")
	d.wantNext(x1)
	d.wantNext(y1)
	z1, y2 := d.of("z"), d.of("y")
	d.wantNext(x2)
	d.Remove(z1, d.now)
	d.wantNext(y2)
	d.wantNext(x3)
	d.wantNext(x4)
	d.wantNext(nil)
}
