package main

import (
	"slices"
	"sync"
	"time"

	"github.com/eventd/eventd/hack/bench/internal/timing"
)

// stored are the versions that the apiserver has answered.
type stored struct {
	mu   sync.Mutex
	at   map[version]time.Time // when it has answered
	last map[int]int           // highest number, by Event
}

func newStored() *stored { return &stored{at: make(map[version]time.Time), last: make(map[int]int)} }

func (s *stored) add(v version, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[v] = at
	s.last[v.event] = max(s.last[v.event], v.number)
}

func (s *stored) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// arrivals are the versions that a destination has accepted.
type arrivals struct {
	mu     sync.Mutex
	first  map[version]time.Time // when they came first, without probes
	again  int                   // accepted when they were there already
	probes map[int]bool          // by number
	latest time.Time             // when something came
}

func newArrivals() *arrivals {
	return &arrivals{first: make(map[version]time.Time), probes: make(map[int]bool)}
}

func (a *arrivals) add(versions []version, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest = at
	for _, v := range versions {
		if v.event == 0 {
			a.probes[v.number] = true
		} else if _, there := a.first[v]; there {
			a.again++
		} else {
			a.first[v] = at
		}
	}
}

// has reports whether one of the probes from a number on has come.
func (a *arrivals) hasProbe(from int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number := range a.probes {
		if number >= from {
			return true
		}
	}
	return false
}

// progress is how many versions have come, and when the latest did.
func (a *arrivals) progress() (n int, latest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.first), a.latest
}

// tally is what came of a stream.
type tally struct {
	stored, delivered, missing int
	finals                     int // Events whose last version is missing
	repeated                   int // deliveries of a version that was delivered before
	unknown                    int // delivered, and the apiserver has not answered them
	latencies                  []time.Duration
}

// tally compares what has come with what is stored.
func (a *arrivals) tally(s *stored) tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	t := tally{stored: len(s.at), repeated: a.again}
	for v, answered := range s.at {
		came, ok := a.first[v]
		if ok {
			// It may come before its author has read the answer.
			t.latencies = append(t.latencies, max(0, came.Sub(answered)))
		} else if s.last[v.event] == v.number {
			t.finals++
		}
	}
	slices.Sort(t.latencies)
	t.delivered = len(t.latencies)
	t.missing = t.stored - t.delivered
	t.unknown = len(a.first) - t.delivered
	return t
}

// share is the part that was delivered.
func (t *tally) share() float64 { return float64(t.delivered) / float64(t.stored) }

func (t *tally) percentile(n int) time.Duration {
	if len(t.latencies) == 0 {
		return 0
	}
	return timing.Percentile(t.latencies, n)
}
