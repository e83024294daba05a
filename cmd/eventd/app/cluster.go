package app

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/pkg/sink"
)

// loadConfig reads a kubeconfig, or the Pod's own configuration if it is empty. Like
// delegated authentication, it uses no other files and no environment variables.
func loadConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no apiserver to write to: --kubeconfig is not set, and this process does not run in a Pod")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the in-cluster configuration: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // it recommends an environment variable
		err = errors.New("it has no current-context with a cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// userAgent returns the User-Agent of requests.
func userAgent() string { return "eventd/" + Version() }

// newSinkClient returns the client that writes Events. It has its own connections, so
// that writes and reviews of callers do not delay each other.
func newSinkClient(cluster *rest.Config) (sink.Client, error) {
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent()
	return sink.NewClientForConfig(config)
}
