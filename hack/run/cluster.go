package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// cluster is where Events are stored.
type cluster struct {
	config *rest.Config // of an administrator
	client kubernetes.Interface

	// controlPlane is the process if the cluster was started here.
	controlPlane *process
	// applied is what was applied to a cluster that stays.
	applied *manifests
}

// openCluster connects to the cluster of KUBECONFIG, or starts one.
func openCluster(ctx, hurry context.Context, dir string) (*cluster, error) {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return existingCluster()
	}
	say("starting the control plane")
	binary, err := testenv.Binary(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	stdout := newFirstLine()
	p, err := start(dir, "control plane", stdout, binary, "--exit-on-stdin-eof")
	if err != nil {
		return nil, err
	}
	c, err := connectToReady(ctx, p, stdout.line)
	if err != nil {
		if !p.ended() {
			err = errors.Join(err, p.stop(hurry))
		}
		return nil, err
	}
	say("the control plane is ready at %s after %s", c.config.Host, time.Since(began).Round(time.Second))
	return c, nil
}

// connectToReady waits until the control plane says where it is.
func connectToReady(ctx context.Context, p *process, ready <-chan string) (*cluster, error) {
	select {
	case line := <-ready:
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 || fields[0] != "ready" {
			return nil, fmt.Errorf("the control plane says %q", line)
		}
		config, err := clientcmd.BuildConfigFromFlags("", fields[2])
		if err != nil {
			return nil, err
		}
		return connect(config, p)
	case <-p.done:
		return nil, p.failure("ended before it was ready")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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

func connect(config *rest.Config, controlPlane *process) (*cluster, error) {
	config.QPS = -1 // the view shows what happens when it happens
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{config: config, client: client, controlPlane: controlPlane}, nil
}

// close leaves nothing of this run behind: the control plane ends if it was
// started here, and what was added to another cluster is removed.
func (c *cluster) close(hurry context.Context) error {
	if c.controlPlane != nil {
		return c.controlPlane.stop(hurry)
	}
	if c.applied == nil {
		return nil
	}
	say("removing what was added to the cluster")
	ctx, cancel := context.WithTimeout(hurry, time.Minute)
	defer cancel()
	return errors.Join(c.applied.remove(ctx), c.awaitNamespaceGone(ctx, controllerPatience))
}
