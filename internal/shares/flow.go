package shares

import (
	"net"
	"net/netip"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Flow identifies whose use is counted together: that of a user of a tenant in a namespace. A tenant
// that is a single user has no User. The tenant of a peer that is not authenticated is its address.
type Flow struct{ Tenant, User, Namespace string }

// FlowOf returns the flow of a user in a namespace, or with "" in all of them.
func FlowOf(user, namespace string) Flow {
	f := Flow{Tenant: occurrence.TenantOf(user), Namespace: namespace}
	if f.Tenant != user {
		f.User = user
	}
	return f
}

// Rightless is the User of all users of a tenant that have no rights, and Unproven that of all of whose rights nothing
// is known yet. So they have no more by being many.
const Rightless, Unproven = "\x00rightless", "\x00unproven"

// Of returns the flow of the users of the tenant that are Rightless or Unproven.
func (f Flow) Of(group string) Flow {
	if f.User != "" {
		f.User = group
	}
	return f
}

// FlowOfAddress returns the flow of a peer that is not authenticated, from its host and port.
// An IPv6 /64 is one flow, since a host usually has a whole /64.
func FlowOfAddress(hostPort string) Flow {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return Flow{Tenant: "\x00address:" + host}
	}
	address = address.Unmap().WithZone("")
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return Flow{Tenant: "\x00address:" + prefix.String()}
	}
	return Flow{Tenant: "\x00address:" + address.String()}
}
