package sink

import (
	"strings"
	"testing"
	"time"

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
