package occurrence

import "strings"

// serviceAccountPrefix is the prefix of the user names of ServiceAccounts,
// system:serviceaccount:<namespace>:<name> (apiserver/pkg/authentication/serviceaccount).
const serviceAccountPrefix = "system:serviceaccount:"

// TenantOf returns the tenant of a user. All ServiceAccounts of a namespace are one
// tenant, and share its limits, each a part of them: a user that can create one can create any number. Every
// other user is a tenant of its own. For a recorder in this process, both are "".
func TenantOf(user string) string {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return user
	}
	namespace, _, ok := strings.Cut(rest, ":")
	if !ok {
		return user
	}
	return user[:len(serviceAccountPrefix)+len(namespace)]
}
