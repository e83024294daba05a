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
	namespace := func(tenant, namespace int) Flow { return Flow{fmt.Sprint("t", tenant), "", fmt.Sprint("n", namespace)} }
	var ten []Flow
	for i := range 10 {
		ten = append(ten, Flow{Tenant: fmt.Sprint(i)})
	}
	user := func(name, namespace string) Flow { return Flow{"t", name, namespace} }
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
		"one user":                        {[]Flow{user("a", "n")}, 1, []int64{16}},
		"one user, four namespaces":       {[]Flow{user("a", "1"), user("a", "2"), user("a", "3"), user("a", "4")}, 1, []int64{7, 6, 6, 6}},
		"two users":                       {[]Flow{user("a", "n"), user("b", "n")}, 1, []int64{9, 9}},
		"rightless users":                 {[]Flow{user(Rightless, "n")}, 1, []int64{9}},
		"unproven and rightless users":    {[]Flow{user(Unproven, "n"), user(Rightless, "n")}, 1, []int64{11, 6}},
		"a user and the rightless":        {[]Flow{user("a", "n"), user(Rightless, "n")}, 1, []int64{11, 6}},
		"users of a tenant, and another":  {[]Flow{user("a", "n"), user("b", "n"), user("c", "n"), namespace(1, 1)}, 1, []int64{6, 6, 6, 15}},
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

// Those who come first and release nothing leave a part to the next user of their tenant.
func TestUserFindsAPartOfItsTenantFree(t *testing.T) {
	user := func(name string) Flow { return Flow{"t", name, "n"} }
	for name, test := range map[string]struct {
		first []Flow
		want  int64 // of the next user, of 1000
	}{
		"nobody":                     {nil, 250},
		"the rightless":              {[]Flow{user(Rightless)}, 143},
		"the rightless and unproven": {[]Flow{user(Rightless), user(Unproven)}, 36},
		"another user":               {[]Flow{user("a")}, 63},
		"another and the rightless":  {[]Flow{user("a"), user(Rightless)}, 36},
		"three others":               {[]Flow{user("a"), user("b"), user("c")}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(1000)
			for _, f := range test.first {
				for s.Acquire(f, 1) {
				}
			}
			got := int64(0)
			for s.Acquire(user("next"), 1) {
				got++
			}
			if got != test.want {
				t.Errorf("the next user has %d, want %d", got, test.want)
			}
		})
	}
}

func TestUseIsBoundedAndAllIsReleased(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := New(1000)
	held := map[Flow]int64{}
	for range 10_000 {
		f := Flow{fmt.Sprint(random.IntN(5)), []string{"", "a", "b", Rightless}[random.IntN(4)], fmt.Sprint(random.IntN(3))}
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
