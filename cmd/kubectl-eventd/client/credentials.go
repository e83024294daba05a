package client

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// credentials returns how a kubeconfig authenticates its user. How it verifies the kube-apiserver the dialer
// replaces. An exec plugin is given the cluster of the kubeconfig.
func credentials(config *rest.Config) (*transport.Config, error) {
	own, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	own.TLS.NextProtos = []string{"h2", "http/1.1"}
	return own, nil
}
