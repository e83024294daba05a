package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// eventd is the running daemon.
type eventd struct {
	*process
	config *rest.Config // leads to it, without credentials
}

// startEventd starts it with the account of deploy/, on a free port, and
// returns when it serves.
func startEventd(ctx, hurry context.Context, c *cluster, binary, dir string) (*eventd, error) {
	config, err := c.as(ctx, eventdAccount, c.config)
	if err != nil {
		return nil, err
	}
	kubeconfig, endpoint := filepath.Join(dir, "eventd.kubeconfig"), filepath.Join(dir, "endpoint.kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	p, err := start(dir, "eventd", nil, binary,
		"--kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=0", "--endpoint-kubeconfig="+endpoint)
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
