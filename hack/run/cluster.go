package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/manifests"
	"github.com/eventd/eventd/test/testenv"
)

// cluster is where Events are stored.
type cluster struct {
	config *rest.Config // of an administrator
	client kubernetes.Interface

	// controlPlane is nil if the cluster was there before.
	controlPlane *testenv.ControlPlane
	// applied is what was applied to a cluster that stays.
	applied *manifests.Applier
}

// openCluster connects to the cluster of KUBECONFIG, or starts one.
func openCluster(ctx context.Context) (*cluster, error) {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return existingCluster()
	}
	say("starting the control plane")
	began := time.Now()
	controlPlane, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	c, err := connect(controlPlane.Config(), controlPlane)
	if err != nil {
		return nil, errors.Join(err, controlPlane.Stop())
	}
	say("the control plane is ready at %s after %s", c.config.Host, time.Since(began).Round(time.Second))
	return c, nil
}

func existingCluster() (*cluster, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	say("the cluster is %s (context %q)", config.Host, raw.CurrentContext)
	say("deploy/ and the namespace %s are applied to it; what was not there before is removed at the end", demoNamespace)
	return connect(config, nil)
}

func connect(config *rest.Config, controlPlane *testenv.ControlPlane) (*cluster, error) {
	config.QPS = -1 // the view is up to date
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{config: config, client: client, controlPlane: controlPlane}, nil
}

// close leaves nothing of this run behind: it stops a control plane that was started
// here, and removes what was added to another cluster. abort bounds the latter.
func (c *cluster) close(abort context.Context) error {
	if c.controlPlane != nil {
		return c.controlPlane.Stop()
	}
	if c.applied == nil {
		return nil
	}
	say("removing what was added to the cluster")
	ctx, cancel := context.WithTimeout(abort, time.Minute)
	defer cancel()
	return errors.Join(c.applied.Remove(ctx), c.awaitNamespaceGone(ctx, controllerPatience))
}
