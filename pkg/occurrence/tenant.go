package occurrence

import "strings"

// serviceAccountPrefix begins the user name of every ServiceAccount:
// system:serviceaccount:<namespace>:<name> (apiserver/pkg/authentication/serviceaccount).
const serviceAccountPrefix = "system:serviceaccount:"

// TenantOf returns whom a user shares its limits with: all ServiceAccounts of one
// namespace are one tenant, since whoever may create one may create any number.
// Every other user is a tenant of its own. The tenant of a recorder in this
// process is "".
func TenantOf(user string) string {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return user
	}
	namespace, _, ok := strings.Cut(rest, ":")
	if !ok {
		return user
	}
	return serviceAccountPrefix + namespace
}
