package replication

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// open opens a stream.
func (o *owner) open(t *testing.T) *Stream {
	t.Helper()
	s, err := o.journal.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.Lock() // its alarm may ring
		defer o.Unlock()
		s.end()
	})
	return s
}

// record adds an occurrence of the first series, whose caller waits for a follower.
func (o *owner) record() {
	o.recordOnly()
	o.journal.SendNow()
}

// recordOnly adds one whose caller does not wait.
func (o *owner) recordOnly() {
	o.add(0, "it was")
	o.journal.Recorded(1, "tenant")
}

// pass lets time pass, without the lock.
func (o *owner) pass(d time.Duration) {
	o.Unlock()
	time.Sleep(d)
	synctest.Wait()
	o.Lock()
}

// acknowledge has the follower acknowledge all that is sent next.
func (o *owner) acknowledge(t *testing.T, streams ...*Stream) {
	t.Helper()
	for _, s := range streams {
		b := s.next(time.Now())
		if again := s.next(time.Now()); b == nil || again != nil {
			t.Fatalf("sent %+v and %+v", b, again)
		}
		if err := s.acknowledge(b.Position, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStateIsThatOfTheBestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner()
		o.Lock()
		defer o.Unlock()
		first, second := o.open(t), o.open(t)
		o.record()
		o.record()
		want := func(want State, unreplicated int64) {
			t.Helper()
			for range 20 { // the streams are in no order
				if got := o.journal.State(); got != want || o.journal.Unreplicated(10) != unreplicated {
					t.Fatalf("got %+v, %d are not replicated; want %+v, %d", got, o.journal.Unreplicated(10), want, unreplicated)
				}
			}
		}
		want(State{CatchingUp: 2}, 10)
		o.acknowledge(t, first)
		o.record()
		want(State{Complete: 1, CatchingUp: 1, Holds: true, Position: 2, Sequence: 2, Recorded: 2}, 1)
		o.acknowledge(t, second)
		want(State{Complete: 2, Holds: true, Position: 3, Sequence: 3, Recorded: 3}, 0)
		o.pass(maxDelay)
		want(State{Complete: 1, CatchingUp: 1, Holds: true, Position: 3, Sequence: 3, Recorded: 3}, 0)
		for position, s := range map[uint64]*Stream{3: second, 0: first} {
			if err := s.acknowledge(position, time.Now()); !errors.Is(err, errNotSent) {
				t.Errorf("%d is acknowledged again: %v", position, err)
			}
		}
		o.acknowledge(t, first)
		if first.bytes != 0 || second.bytes != 0 {
			t.Errorf("%d and %d bytes are left", first.bytes, second.bytes)
		}
	})
}

// A follower is late a second after the oldest change that it has not acknowledged, however often
// it was in time before, and in time again once nothing is that old.
func TestFollowerIsLateAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner()
		o.Lock()
		defer o.Unlock()
		s := o.open(t)
		o.acknowledge(t, s)
		want := func(when string, after time.Duration, inTime bool) {
			t.Helper()
			o.pass(after)
			if s.IsInTime() != inTime {
				t.Errorf("%s: in time is %t", when, !inTime)
			}
		}
		for range 2 {
			o.record()
			want("one change waits", maxDelay*14/20, true)
			o.acknowledge(t, s)
			o.record()
			b := s.next(time.Now())
			want("the next one is sent", maxDelay/20, true)
			o.record()
			want("another one waits", maxDelay*18/20, true)
			want("the one that is sent is late", maxDelay/20, false)
			s.acknowledge(b.Position, time.Now())
			want("the other one is not", 0, true)
			b = s.next(time.Now())
			want("it is", maxDelay/20, false)
			o.record()
			o.pass(maxDelay)
			s.acknowledge(b.Position, time.Now())
			want("one more is", 0, false)
			o.acknowledge(t, s)
			want("nothing is", maxDelay, true)
		}
	})
}

// Changes linger once the snapshot is acknowledged, while they are few and nobody waits for a follower.
func TestWhatLingers(t *testing.T) {
	for name, c := range map[string]struct {
		record func(*owner, *Stream)
		want   time.Duration // after the first change
	}{
		"nobody waits":       {func(o *owner, _ *Stream) { o.recordOnly() }, linger},
		"somebody waits":     {func(o *owner, _ *Stream) { o.record() }, 0},
		"for what is before": {func(o *owner, s *Stream) { o.record(); o.acknowledge(t, s); o.recordOnly() }, linger},
		"a batch is acknowledged": {func(o *owner, s *Stream) {
			o.record()
			b := s.next(time.Now())
			o.record()
			<-s.wake // by the first
			s.acknowledge(b.Position, time.Now())
		}, 0},
		"a little later": {func(o *owner, _ *Stream) {
			o.recordOnly()
			o.pass(linger / 4)
			o.record()
		}, linger / 4},
		"others follow": {func(o *owner, _ *Stream) {
			o.recordOnly()
			o.pass(linger / 4)
			o.recordOnly()
		}, linger},
		"almost many":       {func(o *owner, s *Stream) { s.add(o.counters[0], Change{}, maxLingerBytes-1, time.Now()) }, linger},
		"many":              {func(o *owner, s *Stream) { s.add(o.counters[0], Change{}, maxLingerBytes, time.Now()) }, 0},
		"the sink is ended": {func(o *owner, _ *Stream) { o.recordOnly(); o.journal.Close() }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOwner()
			o.Lock()
			defer o.Unlock()
			s := o.open(t)
			if s.next(time.Now()) == nil {
				t.Fatal("the snapshot lingers")
			}
			o.recordOnly() // while the snapshot is not acknowledged
			s.acknowledge(s.sent.position, time.Now())
			o.pass(linger)
			b := s.next(time.Now())
			<-s.wake // by the last change
			o.pass(linger)
			s.acknowledge(b.Position, time.Now())
			if o.pass(time.Hour); len(s.wake) > 0 {
				t.Error("there is nothing to send")
			}
			began := time.Now()
			c.record(o, s)
			for sent := false; !sent; sent = s.next(time.Now()) != nil {
				o.Unlock()
				<-s.wake
				o.Lock()
			}
			if after := time.Since(began); after != c.want {
				t.Errorf("%s: it is sent after %s, want %s", name, after, c.want)
			}
		})
	}
}

// Of what changes while a snapshot is sent, a batch has what the follower knows.
func TestSnapshotIsSentWithWhatChangesMeanwhile(t *testing.T) {
	const series = 3 * snapshotChunk
	o := newOwner()
	for i := range series {
		o.add(i, "it was")
	}
	s := o.open(t)
	for i, want := range []int{0, 1, 2} { // changes
		b := s.next(time.Now())
		if len(b.Changes) != want || len(b.Snapshot) != snapshotChunk || b.Complete != (i == 2) {
			t.Errorf("batch %d has %d changes and %d series", i, len(b.Changes), len(b.Snapshot))
		}
		o.add(0, "it was again")
		o.add(snapshotChunk, "it was again")
		o.add(series-1, "it was again")
	}
	s.acknowledge(o.journal.position-3, time.Now())
	if waiting := 3 * s.backlog[0].bytes(); s.bytes != waiting {
		t.Errorf("%d bytes, want %d", s.bytes, waiting)
	}
}

func TestBacklogIsBounded(t *testing.T) {
	o := newOwner()
	o.Lock()
	defer o.Unlock()
	s := o.open(t)
	o.acknowledge(t, s)
	for range 2 * maxBacklog >> 16 {
		o.add(0, strings.Repeat("x", 1<<16))
	}
	if err := <-s.failed; !errors.Is(err, ErrTooSlow) || len(s.backlog) > 0 || s.next(time.Now()) != nil {
		t.Errorf("it fails with %v, and %d changes are kept", err, len(s.backlog))
	}
}

func TestStreamsAreBounded(t *testing.T) {
	o := newOwner()
	s := o.open(t)
	<-s.wake
	for range maxSessions - 1 {
		o.open(t)
	}
	if _, err := o.journal.Open(); !errors.Is(err, errTooMany) {
		t.Errorf("one too many: %v", err)
	}
	o.journal.Close()
	if _, err := o.journal.Open(); !errors.Is(err, ErrClosed) || len(s.wake) != 1 {
		t.Errorf("after the end: %v, %d signals", err, len(s.wake))
	}
}

func TestStreamIsDoneWhenAllIsAcknowledgedAndAnswered(t *testing.T) {
	o := newOwner()
	o.Lock()
	defer o.Unlock()
	s := o.open(t)
	want := func(when string, done bool) {
		t.Helper()
		if s.isDone() != done {
			t.Errorf("%s: done is %t", when, !done)
		}
	}
	want("nothing is sent", false)
	b := s.next(time.Now())
	want("the snapshot is not acknowledged", false)
	s.acknowledge(b.Position, time.Now())
	want("all is", true)
	o.record()
	want("a change is not sent", false)
	b = s.next(time.Now())
	want("it is not acknowledged", false)
	s.acknowledge(b.Position, time.Now())
	s.answers = []answer{{}}
	want("an answer is not sent", false)
	s.releases = []Mark{{}}
	want("nor is a release", false)
	s.answers, s.releases = nil, nil
	want("all are", true)
	o.journal.Close()
	if b := s.next(time.Now()); b != nil {
		t.Errorf("sent %+v at the end", b)
	}
}

// Cuts of an ended stream go when what was pending has settled or is joined.
func TestEndedStreamIsForgotten(t *testing.T) {
	o := newOwner()
	s := o.open(t)
	o.record()
	o.record()
	s.next(time.Now())
	s.end()
	kept := []bool{o.journal.Keeps(1, 2)}
	o.journal.Joined(o.counters[0], 1, 2)
	kept = append(kept, o.journal.Keeps(1, 2))
	o.journal.Settled(o.counters[0], []uint64{2})
	if kept = append(kept, o.journal.Keeps(1, 2)); !slices.Equal(kept, []bool{true, true, false}) {
		t.Errorf("the cut is kept: %v", kept)
	}
}

func TestLaterFollowersReleaseToo(t *testing.T) {
	o := newOwner()
	other := numbered(1)
	o.journal.Release(other, 5)
	if got := o.open(t).releases; !slices.Equal(got, []Mark{{other, 5}}) {
		t.Errorf("got %v", got)
	}
	o.journal.Forget(other)
	if got := o.open(t).releases; len(got) > 0 {
		t.Errorf("forgotten, got %v", got)
	}
}
