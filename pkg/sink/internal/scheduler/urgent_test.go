package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// as enqueues a job of a tenant that is ready.
func (d *driver) as(namespace, tenant string, urgent bool) *Job {
	j := &Job{Tenant: tenant, Urgent: urgent}
	d.Enqueue(j, namespace, d.now, d.now)
	return j
}

// done ends a job, and keeps its slot free.
func (d *driver) done(jobs ...*Job) {
	for _, j := range jobs {
		d.Done(j, time.Time{}, d.now)
	}
}

// Of a tenant, urgent jobs are first, but not for ever.
func TestUrgentJobsOfATenantAreFirst(t *testing.T) {
	d := newDriver(t, 100)
	n1, n2, n3 := d.as("a", "x", false), d.as("a", "x", false), d.as("a", "x", false)
	u1, u2, u3, u4 := d.as("a", "x", true), d.as("a", "x", true), d.as("a", "x", true), d.as("a", "x", true)
	d.wantNext(u1, u2, u3, n1, u4, n2, n3, nil)
}

// No tenant and no namespace comes first because its jobs are urgent.
func TestUrgentJobsTakeNoTurnOfOthers(t *testing.T) {
	d := newDriver(t, 100)
	x1, x2 := d.as("a", "x", true), d.as("a", "x", true)
	y1, y2 := d.as("a", "y", false), d.as("a", "y", false)
	b1, b2 := d.as("b", "", false), d.as("b", "", false)
	d.wantNext(x1, b1, y1, b2, x2, y2, nil)
}

// With UrgentFirst, an urgent job waits for no job of another namespace that is not, however many
// namespaces there are. Of those that are not urgent, one is dequeued after so many in a row.
func TestUrgentJobsOfAllNamespacesAreFirst(t *testing.T) {
	d := newDriver(t, 1000)
	d.urgentFirst = true
	var others []*Job
	for i := range 100 {
		others = append(others, d.as(fmt.Sprint("many", i), "", false))
	}
	d.wantNext(others[0])
	u1, u2 := d.as("few", "", true), d.as("many50", "", true)
	d.wantNext(u1, u2, others[1])

	var urgent []*Job
	for i := range 8 {
		urgent = append(urgent, d.as(fmt.Sprint("urgent", i%2), "", true))
	}
	d.wantNext(urgent[0], urgent[1], urgent[2], others[2], urgent[3], urgent[4], urgent[5], others[3], urgent[6], urgent[7], others[4])
}

// A job that is removed is in no list of urgent jobs, nor is one of a namespace without a free slot.
func TestUrgentJobsThatCannotRunDelayNoOther(t *testing.T) {
	d := newDriver(t, 4)
	d.urgentFirst = true
	stuck := []*Job{d.as("stuck", "", true), d.as("stuck", "", true), d.as("stuck", "", true)}
	d.wantNext(stuck...)
	d.as("stuck", "", true)
	gone, other := d.as("gone", "", true), d.as("other", "", false)
	d.Remove(gone, d.now)
	d.wantNext(other)
	d.done(other)
	d.done(stuck...)
	if n := len(d.dequeueAll()); n != 1 {
		t.Errorf("%d are left, want 1", n)
	}
}

// The jobs of all classes of a namespace move to another list with its health.
func TestUrgentJobsMoveWithTheHealthOfTheirNamespace(t *testing.T) {
	d := newDriver(t, 16)
	d.urgentFirst = true
	other, urgent := d.as("a", "", false), d.as("a", "", true)
	wantIn := func(list int) {
		t.Helper()
		for c := range classes {
			if in, notIn := d.ready[c][list].Len(), d.ready[c][1-list].Len(); in != 1 || notIn != 0 {
				t.Errorf("class %d: listed %d times, and %d times where it does not belong", c, in, notIn)
			}
		}
	}
	wantIn(healthy)
	n := urgent.namespace
	n.health.maxSlots = 1
	d.updateHealth(n)
	wantIn(degraded)
	n.health.maxSlots = 16
	d.updateHealth(n)
	wantIn(healthy)
	d.wantNext(urgent)
	if d.ready[urgentJob][healthy].Len() != 0 {
		t.Error("a namespace without urgent jobs is listed with those")
	}
	d.wantNext(other, nil)
	if d.ready[everyJob][healthy].Len() != 0 {
		t.Error("a namespace without ready jobs is listed")
	}
}
