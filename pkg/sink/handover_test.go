package sink

import (
	"context"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// The holder is not elected. It hands over, and keeps what it holds until the leader has written it.
func TestHolderHandsOverToTheNextLeader(t *testing.T) {
	f := &fake{}
	replicas(t, 3, f, nil, func(t *testing.T, all []*replica) {
		leader, holder, next := all[0], all[1], all[2]
		holder.follow(leader)
		leader.line.down.Store(true)
		next.line.down.Store(true)
		leader.recordEach(100)
		pass(replicated)
		leader.crash()
		next.SetLeading(true)
		s := holder.follow(next)
		pass(time.Minute)
		for _, r := range []*replica{holder, next} {
			r.wantHeld(100)
		}
		next.line.down.Store(false)
		pass(time.Minute)
		f.wantStored(t, 100, 100)
		next.wantTotals(0, 100, ends{written: 100})
		for _, r := range []*replica{holder, next} {
			r.wantHeld(0)
		}
		s.end()
		// Whoever leads next has nothing to write.
		holder.leads()
		holder.wantTotals(0, 0, ends{})
		f.wantStored(t, 100, 100)
	})
}

// What a follower holds of a leader that is closed settles as handed over, also what was accepted last.
func TestClosedLeaderHandsOver(t *testing.T) {
	for _, within := range []time.Duration{10 * time.Millisecond, time.Second} {
		f := &fake{}
		replicas(t, 2, f, nil, func(t *testing.T, all []*replica) {
			leader, next := all[0], all[1]
			s := next.follow(leader)
			leader.recordEach(2)
			pass(0)
			leader.line.mute.Store(true)
			leader.recordEach(3) // in doubt
			pass(0)
			began := time.Now()
			if left := leader.closeWithin(within); left != (Pending{}) || time.Since(began) > within {
				t.Errorf("left %+v after %v", left, time.Since(began))
			}
			leader.wantTotals(5, 0, ends{written: 2, occurrence.HandedOver: 3})
			s.wantError(t, errClosed)
			next.wantHeld(3)
			next.leads()
			f.wantStored(t, 3, 5)
			next.wantTotals(0, 3, ends{occurrence.Found: 3})
		})
	}
}

// A process that ends waits until another one has what it holds.
func TestHoldingsAreHandedOverBeforeTheEnd(t *testing.T) {
	replicas(t, 3, &fake{}, nil, func(t *testing.T, all []*replica) {
		leader, holder, next := all[0], all[1], all[2]
		want := func(when string, handedOver bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := holder.held.AwaitHandover(ctx); (err == nil) != handedOver {
				t.Errorf("%s: %v", when, err)
			}
		}
		want("nothing is held", true)
		holder.follow(leader)
		leader.line.down.Store(true)
		next.line.down.Store(true)
		leader.recordEach(3)
		pass(replicated)
		want("its contributor is there", true)
		leader.crash()
		want("nobody leads", false)
		next.SetLeading(true)
		s := holder.follow(next)
		want("the next leader has it", true)
		s.end()
		want("that may have died", false)
		time.AfterFunc(time.Second, func() { holder.follow(next) })
		want("it was only cut off", true)
		next.line.down.Store(false)
		pass(time.Minute)
		holder.wantHeld(0)
		want("it is written", true)
	})
}
