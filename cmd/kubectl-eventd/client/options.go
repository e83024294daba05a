package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Ways to eventd.
const (
	// ViaEventd is a connection to eventd, with the caller's own credentials.
	ViaEventd = "eventd"
	// ViaAPIServer is the aggregated API: requests to the kube-apiserver, which passes the user on.
	ViaAPIServer = "apiserver"
)

// How a connection to eventd is made.
const (
	// ConnectAuto is direct to a loopback address, else by forwarding.
	ConnectAuto = "auto"
	// ConnectForward is through the kube-apiserver to the leader's Pod, as kubectl port-forward does.
	ConnectForward = "forward"
	// ConnectDirect is to the address that the leader announces.
	ConnectDirect = "direct"
)

// Vias and Connects are the values of the flags.
var (
	Vias     = []string{ViaEventd, ViaAPIServer}
	Connects = []string{ConnectAuto, ConnectForward, ConnectDirect}
)

// Options say where eventd is, and how its server is verified.
type Options struct {
	// LeaseNamespace and LeaseName are those of eventd's Lease, in which the leader announces its address
	// and the fingerprint of its certificate. Its Pod is in the same namespace.
	LeaseNamespace, LeaseName string
	// Via is one of Vias, and Connect one of Connects.
	Via, Connect string
	// CertificateAuthority is a file with certificates. With it, eventd's certificate is verified by these, for
	// ServerName or else the announced host, and not by its fingerprint.
	CertificateAuthority string
	ServerName           string
}

// DefaultOptions returns those of an eventd that is installed from deploy/.
func DefaultOptions() Options {
	return Options{LeaseNamespace: "kube-system", LeaseName: "eventd", Via: ViaEventd, Connect: ConnectAuto}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "Namespace of eventd's Lease and Pods.")
	fs.StringVar(&o.LeaseName, "lease-name", o.LeaseName, "Name of eventd's Lease.")
	fs.StringVar(&o.Via, "via", o.Via, "Way to eventd: eventd (a connection to it) or apiserver (the aggregated API).")
	_ = fs.MarkHidden("via") // until the aggregated API can be installed
	fs.StringVar(&o.Connect, "connect", o.Connect, "How to connect to eventd: forward (to its Pod, as kubectl port-forward), direct (to the address in its Lease), or auto (direct to a loopback address, else forward).")
	fs.StringVar(&o.CertificateAuthority, "certificate-authority-eventd", o.CertificateAuthority, "Path to a cert file for the certificate authority of eventd. Without it, eventd's certificate must be the one whose fingerprint is in its Lease.")
	fs.StringVar(&o.ServerName, "eventd-server-name", o.ServerName, "Server name to verify eventd's certificate for, with --certificate-authority-eventd. By default it is the host in its Lease.")
}

// Validate returns an error that names the flag.
func (o *Options) Validate() error {
	switch {
	case o.LeaseNamespace == "" || o.LeaseName == "":
		return errors.New("--lease-namespace and --lease-name must not be empty")
	case !slices.Contains(Vias, o.Via):
		return fmt.Errorf("--via must be one of %q, not %q", Vias, o.Via)
	case !slices.Contains(Connects, o.Connect):
		return fmt.Errorf("--connect must be one of %q, not %q", Connects, o.Connect)
	case o.ServerName != "" && o.CertificateAuthority == "":
		return errors.New("--eventd-server-name needs --certificate-authority-eventd: the fingerprint in the Lease is for any name")
	}
	return nil
}
