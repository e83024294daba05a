package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/replica"
)

// replicas is how many eventds run. One of them leads.
const replicas = 2

// startReplicas starts them all with the account of deploy/, and with more flags. The caller stops
// them, also after an error.
func startReplicas(ctx, abort context.Context, c *cluster, binary, dir string, flags []string) (started []*replica.Replica, err error) {
	config, err := c.as(ctx, eventdAccount, c.config)
	if err != nil {
		return nil, err
	}
	token, err := c.token(ctx, eventdAccount, "eventd")
	if err != nil {
		return nil, err
	}
	for i := range replicas {
		name := fmt.Sprintf("eventd-%d", i+1)
		r, err := replica.Launch(replica.Options{
			Binary: binary, Credentials: config, PeerToken: token, Dir: filepath.Join(dir, name),
			Flags: append([]string{"--leader-elect-resource-namespace=" + demoNamespace}, flags...),
			Env:   []string{"TMPDIR=" + dir}, Group: true,
		})
		if err != nil {
			return started, err
		}
		if err := r.WaitServing(ctx, time.Minute); err != nil {
			if !r.Ended() {
				err = errors.Join(err, stop(abort, r.Process))
			}
			return started, fmt.Errorf("waiting for eventd to serve: %w", err)
		}
		started = append(started, r)
		say("%s serves at %s and writes as %s", name, r.Config(&rest.Config{}).Host, eventdAccount)
	}
	return started, nil
}

// stop stops processes in their order, and kills them when abort ends.
func stop(abort context.Context, all ...*process.Process) error {
	var errs []error
	for _, p := range all {
		ctx, cancel := context.WithTimeout(abort, stopTimeout)
		errs = append(errs, p.Stop(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// stopTimeout is above every grace period of what is started here.
const stopTimeout = 45 * time.Second

// processesOf are those of replicas.
func processesOf(all []*replica.Replica) (processes []*process.Process) {
	for _, r := range all {
		processes = append(processes, r.Process)
	}
	return processes
}
