package sink

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/replication"
)

func TestNextLeaderWritesWhatADeadOneHadPending(t *testing.T) {
	for name, test := range map[string]struct {
		before func(leader *replica) // a follower is connected, and nothing is written yet
		want   ends                  // of the next leader, which has 6 occurrences of 3 series
	}{
		"nothing was written": {func(l *replica) { l.line.down.Store(true) }, ends{written: 6}},
		"an answer was lost":  {func(l *replica) { l.line.mute.Store(true) }, ends{occurrence.Found: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &logged{}
			f := &fake{log: l.add}
			replicas(t, 2, f, nil, func(t *testing.T, all []*replica) {
				leader, next := all[0], all[1]
				next.follow(leader)
				test.before(leader)
				var got answers
				leader.recordEach(3, got.wait, func(o *occurrence.Occurrence) { o.Weight = 2 })
				pass(replicated)
				if got := got.calls(); got != (calls{accepted: 3}) {
					t.Errorf("%+v", got)
				}
				next.wantHeld(6)
				leader.crash()
				*l = logged{}
				next.leads()
				f.wantStored(t, 3, 6)
				next.wantTotals(0, 6, test.want)
				next.wantHeld(0)
				who := fmt.Sprintf("%q=%q", "contributor", leader.instance)
				l.wantLines(t, []string{"Writing what another replica left", who, `"series"=3`}, []string{"Nothing is left", who})
			})
		})
	}
}

// A leader that has lost the Lease writes what it has pending, and so does the next one.
func TestFormerLeaderWritesOn(t *testing.T) {
	f := &fake{takes: 10 * time.Millisecond}
	replicas(t, 2, f, nil, func(t *testing.T, all []*replica) {
		former, next := all[0], all[1]
		s := next.follow(former)
		for range 5 {
			former.recordEach(20)
			pass(3 * time.Millisecond)
		}
		former.SetLeading(false)
		former.line.mute.Store(true)
		s.end()
		next.SetLeading(true)
		next.recordEach(20)
		pass(2 * time.Second)
		former.line.mute.Store(false)
		pass(time.Hour)
		f.wantStored(t, 20, 120)
	})
}

// It only holds again what it has adopted, also what is in work, and hands that to the next leader,
// or adopts it again.
func TestLeaderThatLosesTheLeaseDropsWhatItHasAdopted(t *testing.T) {
	for name, test := range map[string]struct {
		inWork, again bool
		want          ends
	}{
		"another one leads then":          {want: ends{written: 10}},
		"it leads again":                  {again: true, want: ends{written: 10, occurrence.HandedOver: 10}},
		"in work, another one leads then": {inWork: true, want: ends{occurrence.Found: 10}},
		"in work, it leads again":         {inWork: true, again: true, want: ends{occurrence.Found: 10, occurrence.HandedOver: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{takes: 5 * time.Second}
			replicas(t, 3, f, nil, func(t *testing.T, all []*replica) {
				leader, second, next := all[0], all[1], all[2]
				second.follow(leader)
				leader.line.down.Store(true)
				leader.recordEach(10)
				pass(replicated)
				leader.crash()
				second.line.down.Store(!test.inWork)
				second.line.mute.Store(true)
				second.SetLeading(true)
				pass(3 * time.Second)
				second.wantTotals(0, 10, ends{})
				second.SetLeading(false)
				pass(time.Minute)
				second.wantTotals(0, 10, ends{occurrence.HandedOver: 10})
				second.wantHeld(10)
				second.line.down.Store(false)
				second.line.mute.Store(false)
				adopted := int64(10)
				if test.again {
					next, adopted = second, 20
				} else {
					second.follow(next)
				}
				next.leads()
				pass(time.Hour)
				f.wantStored(t, 10, 10)
				next.wantTotals(0, adopted, test.want)
				second.wantHeld(0)
			})
		})
	}
}

// The oldest contributors are forgotten of which nothing is left to write.
func TestAdoptionsAreBounded(t *testing.T) {
	replicas(t, 1, &fake{}, nil, func(t *testing.T, all []*replica) {
		s := all[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		var known []counter.Contributor
		for i := range maxAdoptions + 2 {
			known = append(known, counter.NewInstance())
			a := s.adoptions.get(known[i])
			if i == 0 {
				a.waiting = replication.Mirror{occurrence.Key{}: nil}
			}
		}
		s.forgetAdoptions()
		for i, c := range known {
			want := i == 0 || i > 2
			if is, ordered := s.adoptions.of[c] != nil, slices.Contains(s.adoptions.order, c); is != want || ordered != want {
				t.Errorf("%d of %d is known: %t, in order: %t", i, len(known), is, ordered)
			}
		}
		if n := len(s.adoptions.order); n != maxAdoptions {
			t.Errorf("%d in order", n)
		}
		clear(s.adoptions.of)
		s.adoptions.order = nil
	})
}

// A leader that follows the contributor again drops what it has adopted (rule Ended).
func TestFollowedContributorIsAdoptedNoMore(t *testing.T) {
	replicas(t, 2, &fake{}, nil, func(t *testing.T, all []*replica) {
		former, next := all[0], all[1]
		former.line.down.Store(true)
		next.line.down.Store(true)
		s := next.follow(former)
		former.recordEach(5)
		pass(replicated)
		s.end()
		next.leads()
		next.wantTotals(0, 5, ends{})
		defer next.follow(former).end()
		next.wantTotals(0, 5, ends{occurrence.HandedOver: 5})
		former.line.down.Store(false)
		pass(time.Hour)
	})
}

// One holder has less than another one, and hands over first. What the leader has written then is
// not written again, though the Event has expired since (rule Marks).
func TestLaterHoldingAddsOnlyWhatHasNotSettled(t *testing.T) {
	for name, isStuck := range map[string]bool{"all of the earlier one has settled": false, "a series has not": true} {
		t.Run(name, func(t *testing.T) {
			var stuck atomic.Bool
			stuck.Store(isStuck)
			f := &fake{answer: in("stuck", func(context.Context, *call) error {
				if stuck.Load() {
					return errTooMany
				}
				return nil
			})}
			replicas(t, 4, f, nil, func(t *testing.T, all []*replica) {
				leader, early, late, next := all[0], all[1], all[2], all[3]
				leader.line.down.Store(true)
				s := early.follow(leader)
				late.follow(leader)
				leader.record(0)
				leader.record(1, inNamespace("stuck"))
				pass(replicated)
				s.end()
				leader.recordEach(3)
				leader.record(1, inNamespace("stuck"))
				pass(replicated)
				leader.crash()
				next.SetLeading(true)
				early.follow(next)
				pass(time.Minute)
				f.mu.Lock()
				clear(f.server.Objects)
				f.mu.Unlock()
				late.follow(next)
				pass(time.Minute)
				if a := next.adoptions.of[leader.instance]; len(a.waiting) > 0 {
					t.Errorf("each write examines %d series that cannot be adopted yet", len(a.waiting))
				}
				if isStuck {
					f.wantStored(t, 3, 3)
				} else {
					f.wantStored(t, 4, 4)
				}
				stuck.Store(false)
				pass(time.Minute)
				next.wantTotals(0, 6, ends{written: 6})
				late.wantHeld(0)
			})
		})
	}
}

// A leader that still follows the former one does not adopt what others held of it (rule Ended).
func TestNothingIsAdoptedWhileItsContributorIsFollowed(t *testing.T) {
	f := &fake{}
	replicas(t, 3, f, nil, func(t *testing.T, all []*replica) {
		former, holder, next := all[0], all[1], all[2]
		former.line.down.Store(true)
		s := holder.follow(former)
		still := next.follow(former)
		former.recordEach(5)
		pass(replicated)
		s.end()
		former.SetLeading(false)
		next.SetLeading(true)
		defer holder.follow(next).end()
		pass(time.Minute)
		next.wantTotals(0, 0, ends{})
		still.end()
		pass(time.Minute)
		next.wantTotals(0, 5, ends{written: 5})
		former.line.down.Store(false)
		pass(time.Hour)
		former.wantTotals(5, 0, ends{occurrence.Found: 5})
		f.wantStored(t, 5, 5)
	})
}

// A client that was not answered reports to the next leader. That remembers so when it adopts what
// the client has reported before, though 64 others have reported since (rule Names).
func TestClientOfADeadLeaderIsCountedOnce(t *testing.T) {
	f := &fake{}
	replicas(t, 2, f, nil, func(t *testing.T, all []*replica) {
		leader, next := all[0], all[1]
		next.follow(leader)
		leader.line.down.Store(true)
		leader.record(0, byClient("client", 1))
		pass(replicated)
		leader.crash()
		next.SetLeading(true)
		next.record(0, byClient("client", 1))
		pass(replicated)
		for i := range 70 {
			next.record(0, byClient(fmt.Sprint("other-", i), 1))
		}
		pass(time.Minute)
		f.wantStored(t, 1, 71)
		next.wantTotals(71, 1, ends{written: 71, occurrence.Replayed: 1})
	})
}

// A follower acknowledges after its leader has lost the Lease, and the client reports again to the
// next leader: in every order of what happens then, it counts once.
func TestOccurrenceOfALostTermCountsOnce(t *testing.T) {
	for _, order := range [][]string{
		{"back", "retry", "adopt"}, {"back", "adopt", "retry"}, {"retry", "back", "adopt"},
		{"retry", "adopt", "back"}, {"adopt", "back", "retry"}, {"adopt", "retry", "back"},
		{"crash", "retry", "adopt"}, {"crash", "adopt", "retry"}, {"retry", "crash", "adopt"},
		{"retry", "adopt", "crash"}, {"adopt", "crash", "retry"}, {"adopt", "retry", "crash"},
	} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			f := &fake{}
			replicas(t, 3, f, nil, func(t *testing.T, all []*replica) {
				former, holder, next := all[0], all[1], all[2]
				s := holder.follow(former)
				former.line.down.Store(true)
				var got answers
				former.record(0, byClient("client", 1), got.wait)
				former.SetLeading(false)
				pass(replicated)
				if got := got.calls(); got != (calls{accepted: 1}) {
					t.Errorf("%+v", got)
				}
				next.SetLeading(true)
				do := map[string]func(){
					"back":  func() { former.line.down.Store(false) },
					"crash": former.crash,
					"retry": func() { next.record(0, byClient("client", 1)) },
					"adopt": func() { s.end(); holder.follow(next) },
				}
				for _, step := range order {
					do[step]()
					pass(time.Minute)
				}
				f.wantStored(t, 1, 1)
				holder.wantHeld(0)
			})
		})
	}
}

// The leader writes, and no follower learns of it. Then it counts twice if the Event expires before
// the writing process has seen it, and only then.
func TestExpiredEventCountsTwiceIfItsCountWasNotSeen(t *testing.T) {
	for name, test := range map[string]struct {
		expireFirst, holderLeads bool
		counted                  int64
		next, holder             ends
	}{
		"seen by the next leader":         {counted: 3, next: ends{occurrence.Found: 3}},
		"seen by nobody":                  {expireFirst: true, counted: 6, next: ends{written: 3}},
		"seen by another one than writes": {holderLeads: true, counted: 6, next: ends{occurrence.Found: 3}, holder: ends{written: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{takes: time.Second}
			replicas(t, 3, f, nil, func(t *testing.T, all []*replica) {
				leader, next, holder := all[0], all[1], all[2]
				sessions := []*session{next.follow(leader), holder.follow(leader)}
				expire := func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.server.Expire()
				}
				leader.recordEach(3)
				pass(replicated)
				for _, s := range sessions {
					s.end()
				}
				pass(time.Minute)
				leader.crash()
				if test.expireFirst {
					expire()
				}
				next.leads()
				expire()
				if test.holderLeads {
					next.SetLeading(false)
					holder.leads()
				} else {
					holder.follow(next)
					pass(time.Minute)
					holder.wantHeld(0)
				}
				f.wantStored(t, int(test.holder[written]), test.counted)
				next.wantEnds(test.next)
				holder.wantEnds(test.holder)
			})
		})
	}
}
