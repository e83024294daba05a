package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// settleTimeout is how long after the feeder's end its last reports may take to be
// stored, and seen by the watch.
const settleTimeout = 20 * time.Second

// show feeds eventd and shows the result until ctx ends, or the duration is over. Then
// it compares eventd's metrics with what is stored, and with what was delivered.
func show(ctx, abort context.Context, c *cluster, all []*replica.Replica, to *destination, s settings, dir string) error {
	viewing, stopViewing := context.WithCancel(abort)
	defer stopViewing()
	stored, err := watchStored(viewing, c.client, to.forget)
	if err != nil {
		return err
	}
	meters, err := newMeters(ctx, c, all)
	if err != nil {
		return err
	}
	feeders, err := startFeeders(ctx, c, all, s, dir)
	if err != nil {
		return errors.Join(err, stop(abort, feeders...))
	}
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, c.config); err != nil {
		return errors.Join(err, stop(abort, feeders...))
	}
	screen := newScreen(os.Stdout, title(c, s, kubeconfig))
	err = watchAll(ctx, screen, meters, stored, slices.Concat(feeders, processesOf(all)))
	screen.close()
	if err == nil {
		say("stopping the clients, and comparing what is stored")
	}
	if err := errors.Join(err, stop(abort, feeders...)); err != nil {
		return err
	}
	if err := compare(abort, meters, stored); err != nil {
		return err
	}
	return compareReceivers(abort, meters, stored, to)
}

func newMeters(ctx context.Context, c *cluster, all []*replica.Replica) (m meters, err error) {
	if m.delivery, err = readConfiguration(); err != nil {
		return m, err
	}
	for _, r := range all {
		config, err := c.as(ctx, viewerAccount, r.Config(&rest.Config{}))
		if err != nil {
			return m, err
		}
		m.replicas = append(m.replicas, config)
	}
	return m, nil
}

func title(c *cluster, s settings, kubeconfig string) string {
	until := "Ctrl-C ends it"
	if s.duration > 0 {
		until = fmt.Sprintf("ends after %s", s.duration)
	}
	return fmt.Sprintf("client-go recorders → %d replicas of eventd → kube-apiserver %s → receivers · %s\n", replicas, c.config.Host, until) +
		fmt.Sprintf("in a browser: bin/kubectl-eventd page --kubeconfig=%s --lease-namespace=%s\n", kubeconfig, demoNamespace) +
		// The feeder reports about a few Deployments again and again, by their names.
		fmt.Sprintf("of an object: bin/kubectl-eventd why deployment/web --kubeconfig=%s --lease-namespace=%s --namespace=%s", kubeconfig, demoNamespace, demoNamespace)
}

// startFeeders starts a client for each replica, with its part of the rate. The
// caller stops them, also after an error.
func startFeeders(ctx context.Context, c *cluster, all []*replica.Replica, s settings, dir string) (started []*process.Process, err error) {
	for i, r := range all {
		config, err := c.as(ctx, feederAccount, r.Config(&rest.Config{}))
		if err != nil {
			return started, err
		}
		name := fmt.Sprintf("feeder-%d", i+1)
		kubeconfig := filepath.Join(dir, name+".kubeconfig")
		if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
			return started, err
		}
		cmd := exec.Command(s.feeder, "--kubeconfig="+kubeconfig, "--namespace="+demoNamespace, fmt.Sprintf("--rate=%v", s.rate/float64(len(all))))
		process.Group(cmd)
		feeder, err := process.Start(name, "", cmd)
		if err != nil {
			return started, err
		}
		started = append(started, feeder)
	}
	return started, nil
}

// watchAll updates the screen until ctx ends. It is an error if one of the processes
// ends before. Its own error comes from stop.
func watchAll(ctx context.Context, screen screen, meters meters, stored *stored, processes []*process.Process) error {
	ticker := time.NewTicker(screen.interval())
	defer ticker.Stop()
	began := time.Now()
	for {
		counters, err := meters.read(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			screen.draw(frame{elapsed: time.Since(began), counters: counters, events: stored.events()})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, p := range processes {
			if p.Ended() {
				return errors.New("a process has ended")
			}
		}
	}
}

// compare waits until the counts of the stored Events are what eventd has written, and everything
// else is pending.
func compare(ctx context.Context, meters meters, stored *stored) error {
	var (
		last   counters
		events int
		sum    int64
	)
	exact := func() bool {
		written, uncertain := last.written(), last.settled["uncertain"]
		return written <= sum && sum <= written+uncertain
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settleTimeout, true, func(ctx context.Context) (bool, error) {
		read, err := meters.read(ctx)
		if err != nil {
			return false, err
		}
		all := ofEventd(stored.events())
		last, events, sum = read, len(all), total(all)
		return last.balanced() && exact(), nil
	})
	say("%s", last)
	say("%d Events of eventd are stored, and their counts add up to %d", events, sum)
	switch gone := stored.gone.Load(); {
	case err == nil:
		say("every occurrence is accounted for; %d are pending, and written when the budget of their subject allows", last.pending)
		return nil
	case last.balanced() && gone > 0:
		say("%d Events expired or were deleted meanwhile, so the sums cannot be compared", gone)
		return nil
	case wait.Interrupted(err) && !last.balanced():
		return fmt.Errorf("not everything was settled or pending within %s", settleTimeout)
	case wait.Interrupted(err):
		return fmt.Errorf("%d were written, but the counts add up to %d", last.written(), sum)
	default:
		return err
	}
}
