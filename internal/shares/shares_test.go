package shares

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// fill acquires for a flow until nothing is available.
func fill(s *Shares, f Flow) (n int64) {
	for s.Acquire(f, 1) {
		n++
	}
	return n
}

func TestAPartRemainsFreeForAnother(t *testing.T) {
	for name, c := range map[string]struct {
		before []Flow
		want   int64 // of the last one
	}{
		"one, in one namespace":       {nil, 300},
		"one that has a half":         {[]Flow{{"a", "1"}, {"a", "2"}}, 0},
		"two":                         {[]Flow{{"b", "1"}}, 210},
		"ten":                         {[]Flow{{"1", ""}, {"2", ""}, {"3", ""}, {"4", ""}, {"5", ""}, {"6", ""}, {"7", ""}, {"8", ""}, {"9", ""}}, 8},
		"one that has all namespaces": {[]Flow{{"b", "1"}, {"b", "2"}, {"b", "3"}, {"b", "4"}, {"b", "5"}}, 150},
	} {
		s := New(900)
		for _, f := range c.before {
			fill(s, f)
		}
		got := fill(s, Flow{"a", "last"})
		if got < c.want*9/10 || got > c.want*11/10+1 {
			t.Errorf("%s: %d, want about %d", name, got, c.want)
		}
		if s.InUse() > 900 {
			t.Errorf("%s: %d are in use", name, s.InUse())
		}
	}
}

func TestUseIsBoundedAndAllIsReleased(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := New(1000)
	held := map[Flow]int64{}
	for range 10_000 {
		f := Flow{fmt.Sprint(random.IntN(5)), fmt.Sprint(random.IntN(3))}
		n := random.Int64N(200)
		switch random.IntN(3) {
		case 0:
			if s.Acquire(f, n) {
				held[f] += n
			}
		case 1:
			available := s.Available(f)
			got := s.AcquireUpTo(f, n)
			if got != min(n, available) {
				t.Fatalf("%d of %d were acquired, %d were available", got, n, available)
			}
			held[f] += got
		case 2:
			n = min(n, held[f])
			s.Release(f, n)
			held[f] -= n
		}
		if s.InUse() > 1000 {
			t.Fatalf("%d of 1000 are in use", s.InUse())
		}
	}
	for f, n := range held {
		s.Release(f, n)
	}
	if s.InUse() != 0 || len(s.tenants) != 0 || len(s.flows) != 0 {
		t.Errorf("not all is released: %d, %v, %v", s.InUse(), s.tenants, s.flows)
	}
}
