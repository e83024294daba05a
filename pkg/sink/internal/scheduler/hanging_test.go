package scheduler

import (
	"testing"
	"time"
)

// answerPromptly runs a job of a namespace whose request is answered at once.
func (d *driver) answerPromptly(namespace string) {
	d.t.Helper()
	j := d.in(namespace, 0)
	d.wantNext(j)
	d.Report(j, Result{Began: d.now, Answered: true}, d.now)
	d.Done(j, time.Time{}, d.now)
}

// reportLate reports the requests of jobs, begun at a time. It returns how many slots are lent.
func (d *driver) reportLate(jobs []*Job, began time.Time) (lent int) {
	for _, j := range jobs {
		d.ReportLate(j, began)
	}
	return d.Lent()
}

// checkHanging checks what is known of the jobs that hang, of which jobs are all.
func (d *driver) checkHanging(jobs []Job) {
	d.t.Helper()
	hanging, lent := map[*namespace]int{}, map[*namespace]int{}
	for i := range jobs {
		switch j := &jobs[i]; {
		case j.Running() && j.lent:
			lent[j.namespace]++
			fallthrough
		case j.Running() && j.hangs:
			hanging[j.namespace]++
		case j.hangs || j.lent:
			d.t.Fatal("a job hangs that does not run")
		}
	}
	for _, n := range d.namespaces {
		if n.hanging != hanging[n] || n.lent != lent[n] {
			d.t.Fatalf("%d jobs hang and %d slots are lent, want %d and %d", n.hanging, n.lent, hanging[n], lent[n])
		}
	}
}

// Others may use the slots of jobs whose requests hang, up to half of the limit; the namespace of
// these jobs may not.
func TestSlotsOfJobsThatHangAreLent(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(30, "stuck")
	stuck := d.dequeueAll()
	if len(stuck) != 12 {
		t.Fatalf("%d run", len(stuck))
	}
	for range 2 { // the second time changes nothing
		d.answerPromptly("other")
		if n := d.reportLate(stuck, d.now); n != 8 {
			t.Errorf("%d slots of 16 are lent", n)
		}
	}
	d.wantNext(nil) // in their namespace
	others := d.enqueue(20, "other")
	if n := len(d.dequeueAll()); n != 9 { // three quarters of 16 - 4
		t.Errorf("%d others run", n)
	}
	third := d.enqueue(20, "third")
	if n := len(d.dequeueAll()); n != 2 {
		t.Errorf("%d of a third namespace run", n)
	}
	for _, j := range append(append(stuck[:12:12], others[:9]...), third[:2]...) {
		d.Done(j, time.Time{}, d.now)
	}
	if d.Lent() != 0 || d.limiter.inUse != 0 {
		t.Errorf("%d slots are lent and %d used, though none runs", d.Lent(), d.limiter.inUse)
	}
	if n := len(d.dequeueAll()); n < 12 {
		t.Errorf("%d run after that", n)
	}
}

// As long as no other namespace has an answer in good time, the apiserver may be what is slow.
func TestNoSlotIsLentUnlessOthersAreAnswered(t *testing.T) {
	d := newDriver(t, 16)
	d.answerPromptly("other")
	d.pass(time.Millisecond)
	d.enqueue(4, "stuck")
	stuck, began := d.dequeueAll(), d.now
	d.answerPromptly("stuck")
	if n := d.reportLate(stuck, began); n != 0 {
		t.Errorf("%d are lent though others were answered only before", n)
	}
	d.answerPromptly("other")
	if n := d.reportLate(stuck, began); n != 4 {
		t.Errorf("%d of 4 are lent", n)
	}
}

// The slots of degraded namespaces are few, and stay theirs.
func TestSlotOfADegradedNamespaceIsNotLent(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(20, "stuck")
	began := d.now
	stuck := d.dequeueAll()
	d.pass(time.Second)
	d.answerPromptly("other")
	for _, j := range stuck {
		d.Report(j, Result{Began: began}, d.now)
		d.Done(j, d.now, d.now)
	}
	again := d.dequeueAll()
	if len(again) != 1 {
		t.Fatalf("%d of a degraded namespace run", len(again))
	}
	d.answerPromptly("other")
	if d.reportLate(again, d.now) != 0 {
		t.Error("the slot of a degraded namespace is lent")
	}
}

// While none of its requests is answered, a namespace in which some hang has one more at a time.
func TestNamespaceWhoseRequestsHangSendsOneMoreAtATime(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(4, "a")
	running := d.dequeueAll()
	d.pass(time.Millisecond)
	d.answerPromptly("other")
	d.reportLate(running[:3], d.now)
	waiting := d.enqueue(20, "a")
	d.wantNext(nil) // the fourth runs, and may be answered yet
	for round := range 6 {
		d.reportLate(running, d.now)
		more := d.dequeueAll()
		if len(more) != 1 {
			t.Fatalf("round %d: %d more run", round, len(more))
		}
		running = append(running, more...)
	}
	d.Report(running[9], Result{Began: d.now, Answered: true}, d.now)
	d.Done(running[9], time.Time{}, d.now)
	if n := len(d.dequeueAll()); n != 3 { // three quarters of 16 in all
		t.Errorf("%d more run after an answer", n)
	}
	for _, j := range running[:9] {
		d.Done(j, time.Time{}, d.now)
	}
	d.wantNext(waiting[9]) // none hangs any more
}

// Whether a namespace is answered is judged since the newest of its requests that hang: an older one may be found to
// hang later, and a job may have a further one.
func TestNamespaceIsAnsweredSinceItsNewestRequestThatHangs(t *testing.T) {
	for name, found := range map[string][]struct{ job, began int }{
		"an older one is found later": {{1, 2}, {0, 0}},
		"a further one of a job":      {{0, 0}, {1, 0}, {0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 16)
			d.enqueue(2, "a")
			running, began := d.dequeueAll(), []time.Time{d.now}
			for _, namespace := range []string{"a", "other"} {
				d.pass(time.Millisecond)
				d.answerPromptly(namespace)
				began = append(began, d.now)
			}
			d.enqueue(20, "a")
			for _, f := range found {
				d.ReportLate(running[f.job], began[f.began])
			}
			if n := len(d.dequeueAll()); n != 1 {
				t.Errorf("%d more run, though none was answered since the newest", n)
			}
		})
	}
}

// After a decrease, half of the new limit may be lent. What was lent before stays so.
func TestHalfOfADecreasedLimitMayBeLent(t *testing.T) {
	for name, test := range map[string]struct{ before, want int }{"nothing was lent": {0, 6}, "half was lent": {8, 8}} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 16)
			d.enqueue(12, "stuck")
			stuck := d.dequeueAll()
			other := d.in("other", 0)
			d.wantNext(other)
			d.Report(other, Result{Began: d.now, Answered: true}, d.now)
			d.reportLate(stuck[:test.before], d.now)
			d.Report(other, Result{Began: d.now, Answered: true, Overloaded: true}, d.now)
			if limit, n := d.Limit(), d.reportLate(stuck, d.now); limit != 12 || n != test.want {
				t.Errorf("%d slots of %d are lent, want %d", n, limit, test.want)
			}
		})
	}
}

// A job whose request has returned, however late, has its slot back for the next one.
func TestSlotIsLentUntilTheRequestReturns(t *testing.T) {
	for name, result := range map[string]Result{
		"answered": {Answered: true}, "not answered": {}, "not sent": {Unsent: true}, "without a connection": {Unreachable: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 16)
			d.enqueue(4, "a")
			running, began := d.dequeueAll(), d.now
			d.pass(time.Second)
			d.answerPromptly("other")
			if n := d.reportLate(running, began); n != 4 || d.limiter.inUse != 0 {
				t.Fatalf("%d slots are lent, %d are used", n, d.limiter.inUse)
			}
			result.Began = began
			d.Report(running[0], result, d.now)
			if n := d.namespaces["a"]; d.Lent() != 3 || d.limiter.inUse != 1 || n.hanging != 3 {
				t.Errorf("%d slots are lent, %d are used, %d requests hang", d.Lent(), d.limiter.inUse, n.hanging)
			}
		})
	}
}

// A namespace that was answered, and in which others hang later, has one more at a time again.
func TestNamespaceThatHangsAgainSendsOneMoreAtATime(t *testing.T) {
	d := newDriver(t, 16)
	for round := range 2 {
		d.enqueue(2, "a")
		hanging, began := d.dequeueAll(), d.now
		if len(hanging) != 2 {
			t.Fatalf("round %d: %d run", round, len(hanging))
		}
		d.pass(time.Millisecond)
		d.answerPromptly("other")
		d.reportLate(hanging, began)
		more := d.enqueue(3, "a")
		d.wantNext(more[0], nil)
		for _, j := range more[1:] {
			d.Remove(j, d.now)
		}
		d.Report(more[0], Result{Began: d.now, Answered: true}, d.now)
		d.Done(more[0], time.Time{}, d.now)
		d.pass(time.Millisecond)
	}
}

// When those that hang have returned, a namespace has its share, whether they were answered or not.
func TestNamespaceWhereNoneHangsAnyMoreHasItsShare(t *testing.T) {
	d := newDriver(t, 16)
	d.enqueue(2, "a")
	hanging := d.dequeueAll()
	d.pass(time.Millisecond)
	d.answerPromptly("other")
	d.reportLate(hanging, d.now)
	d.enqueue(20, "a")
	for _, j := range hanging {
		d.Done(j, time.Time{}, d.now)
	}
	if n := len(d.dequeueAll()); n != 12 {
		t.Errorf("%d run, want three quarters of 16", n)
	}
}

// The slots of degraded namespaces are theirs again when their jobs are done, however many have run.
func TestDegradedNamespaceKeepsItsSlots(t *testing.T) {
	d := newDriver(t, 16)
	stuck := d.in("stuck", 0)
	began := d.now
	d.wantNext(stuck)
	d.pass(time.Second)
	d.answerPromptly("other")
	d.Report(stuck, Result{Began: began}, d.now)
	d.Done(stuck, time.Time{}, d.now)
	for range 20 {
		d.answerPromptly("other")
		j := d.in("stuck", 0)
		d.wantNext(j)
		d.Done(j, time.Time{}, d.now)
	}
}
