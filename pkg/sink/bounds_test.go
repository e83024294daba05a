package sink

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// withMemory gives followers memory for what a leader may have pending, times a number.
func withMemory(t *testing.T, times int64, change func(*Options)) func(*Options) {
	return func(o *Options) {
		if change != nil {
			change(o)
		}
		var err error
		if o.Holdings, err = NewHoldings(HoldingsOptions{MaxBytes: times * (o.HeldBytes() + 64<<10)}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantComplete compares the number of followers that hold everything in time.
func (r *replica) wantComplete(want int) {
	r.t.Helper()
	if got := r.followers().Complete; got != want {
		r.t.Errorf("%d followers are complete, want %d", got, want)
	}
}

// Whatever number of names a tenant reports of one series, followers follow, and others are counted:
// of the same series, and of others.
func TestSeriesIsNoLargerThanFollowersHold(t *testing.T) {
	const names = 33_000
	for name, test := range map[string]struct {
		answer answer
		full   bool
		alice  int32 // occurrences that are accepted
	}{
		"deferred": {nil, false, 0}, "hangs": {in("ns", hang), true, names / 1000},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: test.answer}
			replicas(t, 2, f, withMemory(t, 2, nil), func(t *testing.T, all []*replica) {
				s := all[1].follow(all[0])
				var other, alice answers
				for i := range names {
					all[0].recordLater(0, time.Hour, by("mallory"), byClient(fmt.Sprint(i), 1))
					if i%1000 == 0 {
						all[0].record(i, inNamespace("other"), other.wait)
						pass(time.Millisecond)
					}
					if test.full && i%1000 == 0 {
						all[0].record(0, by("alice"), byClient(fmt.Sprint("alice-", i), 1), alice.wait)
					}
				}
				all[0].wantComplete(1)
				pass(time.Second)
				if a, o := alice.calls(), other.calls(); a.settled > 0 || a.accepted < test.alice || o.accepted+o.settled != names/1000 {
					t.Errorf("of the same series %+v, of others %+v of %d", a, o, names/1000)
				}
				if refused := all[0].ledger.Totals().Dropped[occurrence.PendingFull]; (refused > 0) != test.full || refused > names/2+1000 {
					t.Errorf("%d of %d are refused", refused, names)
				}
				s.end()
				defer all[1].follow(all[0]).end() // with a snapshot of it
				pass(time.Second)
				all[0].wantComplete(1)
			})
		})
	}
}

// A tenant that has as much pending as it may leaves memory with the followers: beside the
// holding of a former leader that had as much, and when they begin again.
func TestFullLeaderIsHeldBesideAFormerOne(t *testing.T) {
	few := withMemory(t, 2, func(o *Options) { o.MaxPendingSeries, o.MaxPendingBytes = 400, 1<<20 })
	replicas(t, 3, &fake{answer: hang}, few, func(t *testing.T, all []*replica) {
		fill := func(leader *replica) {
			t.Helper()
			for i := range 2000 {
				long := func(o *occurrence.Occurrence) { o.Event.Message = strings.Repeat("x", i%3*1000) }
				leader.recordLater(i, time.Duration(i%2)*time.Hour, by("mallory"), long)
			}
			pass(time.Second)
			var victims answers
			for i := range 100 {
				leader.record(i, by("alice"), inNamespace("other"), victims.wait)
			}
			pass(time.Second)
			if got := victims.calls(); got != (calls{accepted: 100}) {
				t.Errorf("%+v of 100", got)
			}
		}
		all[1].follow(all[0])
		all[2].follow(all[0])
		fill(all[0])
		all[0].wantComplete(2)
		all[0].crash()
		all[1].SetLeading(true)
		s := all[2].follow(all[1])
		fill(all[1])
		all[1].wantComplete(1)
		s.end()
		all[2].follow(all[1])
		all[1].wantComplete(1)
	})
}

// Large Events of a tenant that are not acknowledged yet leave memory to the changes of others, also
// before the follower has caught up.
func TestTenantDoesNotFillTheBacklogOfOthers(t *testing.T) {
	for _, complete := range []bool{true, false} {
		replicas(t, 2, &fake{answer: hang}, withMemory(t, 2, nil), func(t *testing.T, all []*replica) {
			here, there := net.Pipe()
			follower := &slow{Conn: here}
			s := all[1].followOver(all[0], follower, there)
			if complete {
				pass(time.Second)
			}
			follower.takes.Store(int64(time.Millisecond))
			var mallory, alice answers
			large := func(o *occurrence.Occurrence) { o.Event.Message = strings.Repeat("x", 32<<10) }
			for i := range 400 {
				all[0].record(i, by("mallory"), large, mallory.wait)
				if i%4 == 0 {
					all[0].record(i, by("alice"), inNamespace("other"), alice.wait)
				}
			}
			pass(time.Minute)
			all[0].wantComplete(1)
			if a, m := alice.calls(), mallory.calls(); a != (calls{accepted: 100}) || m.accepted < 40 || m.accepted+m.settled != 400 {
				t.Errorf("%+v of 100, of the tenant %+v of 400 (%t)", a, m, complete)
			}
			s.end()
		})
	}
}

// Followers hold whatever an Event contains.
func TestOddEventsAreHeld(t *testing.T) {
	odd := []change{
		inNamespace(""), inNamespace(strings.Repeat("n", 1000)), by("\xff" + strings.Repeat("u", 1<<20)), byClient("\xff\x00", math.MaxInt32),
		func(o *occurrence.Occurrence) { o.Event.Message = "\xff\x00" + strings.Repeat("m", 1<<20) },
		func(o *occurrence.Occurrence) {
			o.Event.Labels = map[string]string{"": "", "\xff": strings.Repeat("l", 1<<20)}
		},
		func(o *occurrence.Occurrence) {
			o.Event.Type, o.Event.Reason, o.Event.InvolvedObject.Name = "\xff", "", ""
		},
		func(o *occurrence.Occurrence) { o.Event.FirstTimestamp = metav1.Unix(math.MaxInt64, math.MaxInt32) },
		func(o *occurrence.Occurrence) { o.Event.LastTimestamp = metav1.Unix(math.MinInt64, -1) },
		func(o *occurrence.Occurrence) { o.Event.EventTime = metav1.NewMicroTime(time.Unix(1<<60, 1)) },
		func(o *occurrence.Occurrence) {
			o.Event.Count, o.Event.Series = math.MinInt32, &corev1.EventSeries{Count: -1}
		},
		func(o *occurrence.Occurrence) {
			o.Event.Related = &corev1.ObjectReference{FieldPath: strings.Repeat("f", 1<<20)}
		},
		func(o *occurrence.Occurrence) { o.Event.OwnerReferences = make([]metav1.OwnerReference, 1000) },
		func(o *occurrence.Occurrence) {
			o.Event.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{}}}
		},
		func(o *occurrence.Occurrence) { o.Recorded, o.Weight = time.Time{}, math.MaxInt32 },
	}
	replicas(t, 2, &fake{answer: hang}, withMemory(t, 2, nil), func(t *testing.T, all []*replica) {
		s := all[1].follow(all[0])
		for range 2 {
			for i, change := range odd {
				all[0].recordLater(i, time.Hour, change)
				all[0].recordLater(99, time.Hour, change)
				pass(time.Second)
			}
		}
		all[0].wantComplete(1)
		all[1].wantHeld(all[0].Pending().Occurrences)
		s.end()
		defer all[1].follow(all[0]).end()
		pass(time.Second)
		all[0].wantComplete(1)
	})
}

// The memory of a backlog is freed once nothing is pending or settling, and not while anything is. That of a few series
// is kept.
func TestMemoryOfABacklogIsFreed(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		recordLater := func(series int) {
			for i := range series {
				b.recordLater(i, time.Hour, by(fmt.Sprint("user-", i)))
			}
			synctest.Wait()
		}
		recordLater(backlog + 1)
		maps := func() [2]string { return [2]string{fmt.Sprintf("%p", b.pending), fmt.Sprintf("%p", b.fair.flows)} }
		before := maps()
		b.recordLater(2*backlog, 2*time.Hour)
		pass(90 * time.Minute)
		if left := b.Pending(); left.Series != 1 || maps() != before || b.byDeadline.Cap() <= backlog {
			t.Errorf("freed with %d pending", left.Series)
		}
		settling := b.fair.flow(flowKey{"ns", "settling"}) // of what has settled, and is not reported yet
		b.flush()
		if maps() != before {
			t.Error("freed what leads to an occurrence that has settled")
		}
		b.fair.retire(settling)
		b.pending[occurrence.Key{}] = nil // as what is adopted, of no flow
		b.freeBacklog()
		if maps() != before {
			t.Error("freed what is adopted")
		}
		delete(b.pending, occurrence.Key{})
		b.record(0)
		b.flush()
		after := maps()
		if after[0] == before[0] || after[1] == before[1] || b.byDeadline.Cap()+b.byRecorded.Cap() > 0 {
			t.Errorf("kept the memory of %d and %d series", b.byDeadline.Cap(), b.byRecorded.Cap())
		}
		recordLater(backlog / 2)
		b.flush()
		if maps() != after || b.byDeadline.Cap() == 0 {
			t.Errorf("freed the memory of %d series", backlog/2)
		}
		b.wantEnds(ends{written: backlog + 3 + backlog/2})
	})
}
