package client

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// credentials returns how a kubeconfig authenticates its user, without how it verifies the kube-apiserver.
// An exec plugin is still given the cluster of the kubeconfig.
func credentials(config *rest.Config) (*transport.Config, error) {
	own, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	// Insecure only leaves it to the dialer to verify eventd.
	own.TLS.CAFile, own.TLS.CAData, own.TLS.ServerName, own.TLS.Insecure = "", nil, "", true
	own.TLS.NextProtos = []string{"h2", "http/1.1"}
	return own, nil
}
