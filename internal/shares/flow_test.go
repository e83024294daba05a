package shares

import "testing"

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

// A tenant that is one user has its whole share, with rights or without.
func TestFlowOfAUserIsThatOfItsTenant(t *testing.T) {
	const team, robot = "system:serviceaccount:team", "system:serviceaccount:team:robot"
	for user, want := range map[string]struct{ flow, rightless Flow }{
		"jane": {Flow{"jane", "", "n"}, Flow{"jane", "", "n"}},
		robot:  {Flow{team, robot, "n"}, Flow{team, Rightless, "n"}},
	} {
		f := FlowOf(user, "n")
		if f != want.flow || f.Of(Rightless) != want.rightless {
			t.Errorf("%s is of %q, without rights of %q", user, f, f.Of(Rightless))
		}
	}
}
