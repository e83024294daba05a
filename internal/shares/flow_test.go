package shares

import (
	"fmt"
	"testing"
)

func TestFlowOfAnUnknownCallerIsItsHost(t *testing.T) {
	const v4, v6, raw = "10.0.0.1", "2001:db8:0:1::/64", "@"
	for remote, want := range map[string]string{
		"10.0.0.1:1":                  v4,
		"10.0.0.1:2":                  v4,
		"10.0.0.1":                    v4,
		"[::ffff:10.0.0.1]:1":         v4,
		"10.0.0.2:1":                  "10.0.0.2",
		"[2001:db8:0:1::1]:1":         v6,
		"[2001:db8:0:1:ffff::2]:9":    v6,
		"[2001:db8:0:1::1%eth0]:1":    v6,
		"[2001:db8:0:2::1]:1":         "2001:db8:0:2::/64",
		"@":                           raw,
		"[fe80::1%eth0]:1":            "fe80::/64",
		"no-address.example.com:1234": "no-address.example.com",
	} {
		if got := FlowOfAddress(remote); got != (Flow{Tenant: "\x00address:" + want}) {
			t.Errorf("%s is of %q", remote, got)
		}
	}
}

// One tenant has a half, two have a third each, and so on; one namespace of a tenant has half
// of what is free.
func TestSharesLeaveAPartFree(t *testing.T) {
	const capacity = 62 // of which exactly a half is free when one flow has 20
	namespace := func(tenant, namespace int) Flow { return Flow{fmt.Sprint("t", tenant), fmt.Sprint("n", namespace)} }
	for name, test := range map[string]struct {
		flows []Flow
		each  int64 // amount of one Acquire
		want  []int64
	}{
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
