package app

import (
	"fmt"
	"net"
	"strconv"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// advertised returns the address at which other replicas reach a listener.
func (o *Options) advertised(address net.Addr) (string, error) {
	listening, ok := address.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("not a TCP address: %s", address)
	}
	host, port, err := splitAdvertiseAddress(o.LeaderElection.AdvertiseAddress)
	if err != nil {
		return "", err
	}
	if port == "" {
		port = strconv.Itoa(listening.Port)
	}
	if host == "" {
		if host, err = reachable(listening.IP); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// reachable returns the bound address, or the host's own if all addresses are bound.
func reachable(bound net.IP) (string, error) {
	if !bound.IsUnspecified() {
		return bound.String(), nil
	}
	own, err := utilnet.ChooseHostInterface()
	if err != nil {
		return "", fmt.Errorf("finding the address at which other replicas reach this one (set --advertise-address): %w", err)
	}
	return own.String(), nil
}
