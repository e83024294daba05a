package app

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/pkg/sink"
)

// clusterConfig finds the apiserver that is written to, without talking to it.
func (o *Options) clusterConfig() (*rest.Config, error) {
	return loadConfig(o.Kubeconfig)
}

// loadConfig reads a kubeconfig, as delegated authentication and authorization
// do: the file and nothing but the file, or without one this Pod's cluster.
func loadConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no apiserver to write to: --kubeconfig is not set, and this process does not run in a Pod")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the configuration of this Pod's cluster: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// userAgent is what eventd calls itself.
func userAgent() string { return "eventd/" + Version() }

// newSinkClient returns the client that Events are written with. Its connections
// are its own: who the callers are is asked through others, and neither waits for
// the other.
func newSinkClient(cluster *rest.Config) (sink.Client, error) {
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent()
	return sink.NewClientForConfig(config)
}
