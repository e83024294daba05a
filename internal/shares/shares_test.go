package shares

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// One tenant has a half, two have a third each, and so on; one namespace of a tenant has half
// of what is free.
func TestSharesLeaveAPartFree(t *testing.T) {
	const capacity = 62 // of which exactly a half is free when one flow has 20
	namespace := func(tenant, namespace int) Flow { return Flow{fmt.Sprint("t", tenant), fmt.Sprint("n", namespace)} }
	ten := []Flow{{"1", ""}, {"2", ""}, {"3", ""}, {"4", ""}, {"5", ""}, {"6", ""}, {"7", ""}, {"8", ""}, {"9", ""}, {"10", ""}}
	for name, test := range map[string]struct {
		flows []Flow
		each  int64 // amount of one Acquire
		want  []int64
	}{
		"ten tenants":                     {ten, 1, []int64{6, 5, 5, 5, 5, 5, 5, 5, 5, 5}},
		"one namespace":                   {[]Flow{namespace(1, 1)}, 1, []int64{21}},
		"one tenant, two namespaces":      {[]Flow{namespace(1, 1), namespace(1, 2)}, 1, []int64{16, 15}},
		"one tenant, four namespaces":     {[]Flow{namespace(1, 1), namespace(1, 2), namespace(1, 3), namespace(1, 4)}, 1, []int64{8, 8, 8, 7}},
		"two tenants, one namespace each": {[]Flow{namespace(1, 1), namespace(2, 1)}, 1, []int64{16, 15}},
		"in large pieces":                 {[]Flow{namespace(1, 1)}, 7, []int64{21}},
		"one large piece":                 {[]Flow{namespace(1, 1)}, 62, []int64{62}},
		"too large a piece":               {[]Flow{namespace(1, 1)}, 63, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(capacity)
			got := make([]int64, len(test.flows))
			for acquired := true; acquired; {
				acquired = false
				for i, f := range test.flows {
					if s.Acquire(f, test.each) {
						got[i] += test.each
						acquired = true
					}
				}
			}
			sum := int64(0)
			for i, n := range got {
				sum += n
				if n != test.want[i] {
					t.Errorf("%v have %d", test.flows[i], n)
				}
			}
			if used := s.InUse(); used != sum {
				t.Errorf("%d are in use, %d were acquired", used, sum)
			}
			for i, f := range test.flows {
				s.Release(f, got[i])
			}
			if s.InUse() != 0 || len(s.flows)+len(s.tenants) != 0 {
				t.Errorf("%d are in use after the release, %d flows, %d tenants", s.InUse(), len(s.flows), len(s.tenants))
			}
		})
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
