package sink

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// desk drives a schedule with a clock of its own.
type desk struct {
	*schedule
	t   *testing.T
	now time.Time
}

func newDesk(t *testing.T, ceiling int) *desk {
	return &desk{schedule: newSchedule(newLimiter(1, ceiling, time.Second), newRateLimiter(math.Inf(1), 1)), t: t, now: time.Unix(1000, 0)}
}

func (d *desk) in(namespace string, after time.Duration) *job {
	j := &job{}
	d.put(j, namespace, d.now.Add(after), d.now)
	return j
}

func (d *desk) of(tenant string) *job {
	j := &job{tenant: tenant}
	d.put(j, "a", d.now, d.now)
	return j
}

func (d *desk) wantNext(want *job) {
	d.t.Helper()
	if got := d.take(d.now); got != want {
		d.t.Errorf("took %p, want %p", got, want)
	}
}

func TestJobsWaitForTheirTimeWhateverWasSaidBefore(t *testing.T) {
	d := newDesk(t, 10)
	late, soon, moved := d.in("a", 5*time.Second), d.in("a", time.Second), d.in("a", 2*time.Second)
	d.wantNext(nil)
	d.put(moved, "a", d.now.Add(9*time.Second), d.now)
	d.put(late, "a", d.now.Add(4*time.Second), d.now)
	if got := d.next(d.now, d.now).Sub(d.now); got != time.Second {
		t.Errorf("next in %v", got)
	}
	d.now = d.now.Add(4 * time.Second)
	d.wantNext(soon)
	d.wantNext(late)
	d.wantNext(nil)
	d.put(moved, "a", d.now, d.now)
	d.wantNext(moved)
}

// Of many that wait, the one that is brought forward is the next.
func TestJobThatIsBroughtForwardIsNext(t *testing.T) {
	d := newDesk(t, 10)
	var jobs []*job
	for i := range 10 {
		jobs = append(jobs, d.in("a", time.Duration(10+i)*time.Second))
	}
	for n, j := range []*job{jobs[9], jobs[5], jobs[7]} {
		at := d.now.Add(time.Duration(9-n) * time.Second)
		d.put(j, "a", at, d.now)
		if got := d.next(d.now, d.now); !got.Equal(at) {
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
	d.put(j, "a", d.now, d.now)
	d.wantNext(nil)
	d.done(j, d.now, d.now)
	d.wantNext(j)
	d.done(j, time.Time{}, d.now)
	d.wantNext(nil)
	if len(d.namespaces) != 0 || d.limiter.inUse != 0 {
		t.Errorf("%d namespaces and %d running are left", len(d.namespaces), d.limiter.inUse)
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	d := newDesk(t, 100)
	var many []*job
	for range 10 {
		many = append(many, d.in("many", 0))
	}
	few := d.in("few", 0)
	d.wantNext(many[0])
	d.wantNext(few)
	d.wantNext(many[1])
}

// takeAll takes what has a free slot.
func (d *desk) takeAll() (taken []*job) {
	for j := d.take(d.now); j != nil; j = d.take(d.now) {
		taken = append(taken, j)
	}
	return taken
}

func TestNoNamespaceHasAllTheRoom(t *testing.T) {
	d := newDesk(t, 16)
	var more []*job
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
	d.done(other, time.Time{}, d.now)
	d.done(jobs[0], time.Time{}, d.now)
	d.wantNext(nil)
	d.done(jobs[1], time.Time{}, d.now)
	d.wantNext(more[3])
}

// Series that were not answered may have half of their namespace's places, and
// take turns with the others.
func TestSeriesThatWereNotAnsweredLeaveRoomForOthers(t *testing.T) {
	d := newDesk(t, 16)
	for range 12 {
		d.in("a", 0)
	}
	stuck := d.takeAll()
	for _, j := range stuck {
		j.unanswered = true
		d.done(j, d.now, d.now)
	}
	other := d.in("a", 0)
	d.wantNext(stuck[0])
	d.wantNext(other)
	if again := d.takeAll(); len(again) != 5 {
		t.Errorf("%d of 16 places are taken again", 1+len(again))
	}
	d.done(other, d.now, d.now)
	d.wantNext(other)
	d.wantNext(nil)

	stuck[0].unanswered = false
	d.done(stuck[0], d.now, d.now)
	d.wantNext(stuck[6])
	d.wantNext(stuck[0])
	d.wantNext(nil)
}

// Whatever happens: as many run as may, none twice, and all are served.
func TestScheduleServesAll(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := newDesk(t, 1+rng.IntN(6))
		owed := make(map[*job]int)
		namespaceOf := make(map[*job]string)
		again := make(map[*job]bool) // put while it ran
		var jobs, running []*job
		for i := range 30 {
			j := &job{}
			jobs = append(jobs, j)
			namespaceOf[j] = fmt.Sprint(i % 4)
		}
		for step := 0; step < 2000 || len(owed) > 0; step++ {
			if step > 100_000 {
				t.Fatalf("seed %d: %d are never served", seed, len(owed))
			}
			d.now = d.now.Add(time.Duration(rng.IntN(20)) * time.Millisecond)
			switch rng.IntN(3) {
			case 0:
				if step < 2000 {
					j := jobs[rng.IntN(len(jobs))]
					owed[j]++
					again[j] = true
					d.put(j, namespaceOf[j], d.now.Add(time.Duration(rng.IntN(50)-10)*time.Millisecond), d.now)
				}
			case 1:
				if j := d.take(d.now); j != nil {
					for _, other := range running {
						if other == j {
							t.Fatalf("seed %d: a job runs twice", seed)
						}
					}
					running = append(running, j)
					delete(owed, j)
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
					d.done(running[i], at, d.now)
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
	d.drop(z1, d.now)
	d.wantNext(y2)
	d.wantNext(x3)
	d.wantNext(x4)
	d.wantNext(nil)
}
