package occurrence

import "testing"

func TestServiceAccountsOfOneNamespaceAreOneTenant(t *testing.T) {
	for _, test := range []struct{ name, user, tenant string }{
		{"a recorder in this process", "", ""},
		{"a ServiceAccount", "system:serviceaccount:shop:robot", "system:serviceaccount:shop"},
		{"another one of its namespace", "system:serviceaccount:shop:other", "system:serviceaccount:shop"},
		{"one of another namespace", "system:serviceaccount:shop2:robot", "system:serviceaccount:shop2"},
		{"a node", "system:node:one", "system:node:one"},
		{"a person", "jane", "jane"},
		{"a name that begins like a ServiceAccount's", "system:serviceaccounts", "system:serviceaccounts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := TenantOf(test.user); got != test.tenant {
				t.Errorf("TenantOf(%q) = %q, want %q", test.user, got, test.tenant)
			}
		})
	}
}
