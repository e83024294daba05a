package main

import (
	"slices"
	"testing"
	"time"
)

func TestTallyComparesWhatCameWithWhatIsStored(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	s, a := newStored(), newArrivals()
	// Event 1 has three versions, of which the second is missing; 2 misses its last one; 3 is never seen.
	for i, v := range []version{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {3, 1}} {
		s.add(v, at(i*10))
	}
	a.add([]version{{1, 1}, {0, 1}}, at(5))
	a.add([]version{{1, 3}, {2, 1}, {4, 1}}, at(40))
	a.add([]version{{2, 1}, {1, 1}, {1, 1}, {0, 1}}, at(100)) // again, later
	got := a.tally(s)
	if got.stored != 6 || got.delivered != 3 || got.missing != 3 || got.finals != 2 || got.repeated != 3 || got.unknown != 1 {
		t.Errorf("got %+v", got)
	}
	if want := []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}; !slices.Equal(got.latencies, want) {
		t.Errorf("latencies %v, want %v", got.latencies, want)
	}
	if got.share() != 0.5 || got.percentile(50) != 10*time.Millisecond || got.percentile(99) != 20*time.Millisecond {
		t.Errorf("share %v, p50 %s, p99 %s", got.share(), got.percentile(50), got.percentile(99))
	}
}

func TestTheLastVersionIsTheHighestInWhateverOrderItWasAnswered(t *testing.T) {
	s, a := newStored(), newArrivals()
	s.add(version{1, 2}, time.Now())
	s.add(version{1, 1}, time.Now())
	a.add([]version{{1, 1}}, time.Now())
	if got := a.tally(s); got.finals != 1 || got.missing != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestAVersionThatCameBeforeItsAnswerTookNoTime(t *testing.T) {
	s, a := newStored(), newArrivals()
	a.add([]version{{1, 1}}, time.Now())
	s.add(version{1, 1}, time.Now().Add(time.Second))
	if got := a.tally(s); got.percentile(50) != 0 || got.delivered != 1 {
		t.Errorf("got %+v", got)
	}
	if got := newArrivals().tally(s); got.percentile(99) != 0 || got.missing != 1 {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestProbesAreNotCounted(t *testing.T) {
	a := newArrivals()
	a.add([]version{{0, 1}, {0, 2}, {0, 2}}, time.Now())
	if n, latest := a.progress(); n != 0 || latest.IsZero() {
		t.Errorf("%d versions, the latest at %s", n, latest)
	}
	if !a.hasProbe(2) || a.hasProbe(3) {
		t.Error("of two probes, the second one is the last")
	}
	if got := a.tally(newStored()); got.repeated != 0 || got.unknown != 0 {
		t.Errorf("got %+v", got)
	}
}
