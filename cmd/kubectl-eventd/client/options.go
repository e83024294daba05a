package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Ways to eventd.
const (
	// ConnectAuto is direct to a loopback address, else by forwarding.
	ConnectAuto = "auto"
	// ConnectForward is through the kube-apiserver to the leader's Pod, as kubectl port-forward does.
	ConnectForward = "forward"
	// ConnectDirect is to the address that the leader announces.
	ConnectDirect = "direct"
	// ConnectAPIServer is no connection to eventd: the kube-apiserver answers, as the aggregated API, and
	// passes the user on.
	ConnectAPIServer = "apiserver"
)

// Connects are the values of the flag.
var Connects = []string{ConnectAuto, ConnectForward, ConnectDirect, ConnectAPIServer}

// Options say where eventd is, and how its server is verified.
type Options struct {
	// LeaseNamespace and LeaseName are those of eventd's Lease, in which the leader announces its address
	// and the fingerprint of its certificate. Its Pod is in the same namespace.
	LeaseNamespace, LeaseName string
	// Connect is one of Connects.
	Connect string
	// CertificateAuthority is a file with certificates. With it, eventd's certificate is verified by these, for
	// ServerName or else the announced host, and not by its fingerprint.
	CertificateAuthority string
	ServerName           string
	// Group is the API group, "" for v1alpha1.GroupName.
	Group string
}

// DefaultOptions returns those of an eventd that is installed from deploy/.
func DefaultOptions() Options {
	return Options{LeaseNamespace: "kube-system", LeaseName: "eventd", Connect: ConnectAuto}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.LeaseNamespace, "lease-namespace", o.LeaseNamespace, "Namespace of eventd's Lease and Pods.")
	fs.StringVar(&o.LeaseName, "lease-name", o.LeaseName, "Name of eventd's Lease.")
	fs.StringVar(&o.Connect, "connect", o.Connect, "How to connect to eventd: forward (to its Pod, as kubectl port-forward), direct (to the address in its Lease), auto (direct to a loopback address, else forward), or apiserver (by its aggregated API, if the cluster has that).")
	fs.StringVar(&o.CertificateAuthority, "certificate-authority-eventd", o.CertificateAuthority, "Path to a cert file for the certificate authority of eventd. Without it, eventd's certificate must be the one whose fingerprint is in its Lease.")
	fs.StringVar(&o.ServerName, "eventd-server-name", o.ServerName, "Server name to verify eventd's certificate for, with --certificate-authority-eventd. By default it is the host in its Lease.")
}

// Validate returns an error that names the flag.
func (o *Options) Validate() error {
	switch {
	case o.LeaseNamespace == "" || o.LeaseName == "":
		return errors.New("--lease-namespace and --lease-name must not be empty")
	case !slices.Contains(Connects, o.Connect):
		return fmt.Errorf("--connect must be one of %q, not %q", Connects, o.Connect)
	case o.ServerName != "" && o.CertificateAuthority == "":
		return errors.New("--eventd-server-name needs --certificate-authority-eventd: the fingerprint in the Lease is for any name")
	case o.CertificateAuthority != "" && o.Connect == ConnectAPIServer:
		return errors.New("--certificate-authority-eventd is not for --connect=apiserver: the kube-apiserver verifies eventd's certificate")
	}
	return nil
}
