package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// replicas is how many eventds run. One of them leads.
const replicas = 2

// eventd is one running daemon.
type eventd struct {
	*process
	config *rest.Config // leads to it, without credentials
}

// startReplicas starts them all with the account of deploy/. They are to be
// stopped even if that fails.
func startReplicas(ctx, hurry context.Context, c *cluster, binary, dir string) (started []*eventd, err error) {
	config, err := c.as(ctx, eventdAccount, c.config)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "eventd.kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	// In a Pod, a projected volume holds this token.
	token, err := c.token(ctx, eventdAccount, "eventd")
	if err != nil {
		return nil, err
	}
	tokenFile := filepath.Join(dir, "peer-token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return nil, err
	}
	for i := range replicas {
		name := fmt.Sprintf("eventd-%d", i+1)
		e, err := startEventd(ctx, hurry, binary, dir, name,
			"--kubeconfig="+kubeconfig, "--peer-token-file="+tokenFile, "--leader-elect-resource-namespace="+demoNamespace)
		if err != nil {
			return started, err
		}
		started = append(started, e)
		say("%s serves at %s and writes as %s", name, e.config.Host, eventdAccount)
	}
	return started, nil
}

// stopReplicas stops them in the order of their start: the first leader first.
func stopReplicas(hurry context.Context, all []*eventd) error {
	var errs []error
	for _, e := range all {
		errs = append(errs, e.stop(hurry))
	}
	return errors.Join(errs...)
}

// startEventd starts one on a free port and returns when it serves.
func startEventd(ctx, hurry context.Context, binary, dir, name string, flags ...string) (*eventd, error) {
	endpoint := filepath.Join(dir, name+".kubeconfig")
	p, err := start(dir, name, nil, binary, append(flags,
		"--bind-address=127.0.0.1", "--secure-port=0", "--endpoint-kubeconfig="+endpoint)...)
	if err != nil {
		return nil, err
	}
	e := &eventd{process: p}
	if err := e.waitUntilServing(ctx, endpoint); err != nil {
		if !p.ended() {
			_ = p.stop(hurry)
		}
		return nil, err
	}
	return e, nil
}

// waitUntilServing waits for the file in which eventd says where it is.
func (e *eventd) waitUntilServing(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		if e.ended() {
			return false, e.failure("ended before it served")
		}
		_, err := os.Stat(endpoint)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for eventd to serve: %w", err)
	}
	e.config, err = clientcmd.BuildConfigFromFlags("", endpoint)
	return err
}
