package shares

import (
	"net"
	"net/netip"
)

// Flow is whose use of something is counted together: that of one tenant in one
// namespace. What is not known to be of a tenant is of the address that it comes from.
type Flow struct{ Tenant, Namespace string }

// FlowOfAddress is the flow of a peer whose caller is not known, from its host and
// port. A host is usually given a whole /64 of IPv6 addresses, so that is one flow.
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
