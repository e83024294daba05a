// Package clientconfig makes configurations of clients: that of the kube-apiserver, and with the same credentials that of an
// eventd.
package clientconfig

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load returns the configuration of a kubeconfig or, without one, that of a Pod, such as rest.InClusterConfig. An empty file
// is the kubeconfig that kubectl finds.
func Load(file string, inCluster func() (*rest.Config, error)) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	kubeconfig, err := rules.Load()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return inCluster()
	}
	return config, err
}

// ForServer returns a copy of a configuration for another server, whose certificate is verified with a file. What is empty
// stays as it is. With the overrides of clientcmd, a Pod would have no token.
func ForServer(config *rest.Config, server, certificateAuthority string) *rest.Config {
	config = rest.CopyConfig(config)
	if server != "" {
		config.Host, config.ServerName = server, ""
	}
	if certificateAuthority != "" {
		config.CAFile, config.CAData, config.Insecure = certificateAuthority, nil, false
	}
	return config
}
