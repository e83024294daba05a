package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/eventd/eventd/test/testenv"
)

// settleTimeout is how long after the feeder's end the last of what it reported
// may take to be stored, and seen by the watch.
const settleTimeout = 20 * time.Second

// show feeds eventd and shows what becomes of it until ctx ends, or the time
// that was given is over. Then it compares what eventd says with what is stored.
func show(ctx, hurry context.Context, c *cluster, all []*eventd, s settings, dir string) error {
	viewing, stopViewing := context.WithCancel(hurry)
	defer stopViewing()
	stored, err := watchStored(viewing, c.client)
	if err != nil {
		return err
	}
	meters, err := newMeters(ctx, c, all)
	if err != nil {
		return err
	}
	feeders, err := startFeeders(ctx, c, all, s, dir)
	if err != nil {
		return errors.Join(err, stopAll(hurry, feeders))
	}
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	screen := newScreen(os.Stdout, title(c, s))
	processes := slices.Clone(feeders)
	for _, e := range all {
		processes = append(processes, e.process)
	}
	err = watchAll(ctx, screen, meters, stored, processes...)
	screen.close()
	if err == nil {
		say("stopping the clients, and waiting until everything is settled")
	}
	if err := errors.Join(err, stopAll(hurry, feeders)); err != nil {
		return err
	}
	return compare(hurry, meters, stored)
}

func newMeters(ctx context.Context, c *cluster, all []*eventd) (meters, error) {
	var m meters
	for _, e := range all {
		config, err := c.as(ctx, viewerAccount, e.config)
		if err != nil {
			return nil, err
		}
		meter, err := newMeter(config)
		if err != nil {
			return nil, err
		}
		m = append(m, meter)
	}
	return m, nil
}

func stopAll(hurry context.Context, processes []*process) error {
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.stop(hurry))
	}
	return errors.Join(errs...)
}

func title(c *cluster, s settings) string {
	until := "Ctrl-C ends it"
	if s.duration > 0 {
		until = fmt.Sprintf("ends after %s", s.duration)
	}
	return fmt.Sprintf("client-go recorders → %d replicas of eventd → kube-apiserver %s · %s", replicas, c.config.Host, until)
}

// startFeeders has each replica fed by a client of its own, with its part of what
// happens. They are to be stopped even if that fails.
func startFeeders(ctx context.Context, c *cluster, all []*eventd, s settings, dir string) (started []*process, err error) {
	for i, e := range all {
		config, err := c.as(ctx, feederAccount, e.config)
		if err != nil {
			return started, err
		}
		name := fmt.Sprintf("feeder-%d", i+1)
		kubeconfig := filepath.Join(dir, name+".kubeconfig")
		if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
			return started, err
		}
		feeder, err := start(dir, name, nil, s.feeder,
			"--kubeconfig="+kubeconfig, "--namespace="+demoNamespace, fmt.Sprintf("--rate=%v", s.rate/float64(len(all))))
		if err != nil {
			return started, err
		}
		started = append(started, feeder)
	}
	return started, nil
}

// watchAll keeps the screen up to date until ctx ends. It is an error if one of
// the processes ends before.
func watchAll(ctx context.Context, screen screen, meters meters, stored *stored, processes ...*process) error {
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
			if p.ended() {
				return p.failure("ended by itself")
			}
		}
	}
}

// compare waits until eventd has settled everything and says whether the counts
// of the stored Events are what it has written.
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
		var err error
		if last, err = meters.read(ctx); err != nil {
			return false, err
		}
		all := stored.events()
		events, sum = len(all), total(all)
		return last.quiet() && exact(), nil
	})
	say("%s", last)
	say("%d Events are stored, and their counts add up to %d", events, sum)
	switch gone := stored.gone.Load(); {
	case err == nil:
		say("every occurrence is accounted for")
		return nil
	case last.quiet() && gone > 0:
		say("%d Events expired or were deleted meanwhile, so the sums cannot be compared", gone)
		return nil
	case wait.Interrupted(err) && !last.quiet():
		return fmt.Errorf("not everything was settled within %s", settleTimeout)
	case wait.Interrupted(err):
		return fmt.Errorf("%d were written, but the counts add up to %d", last.written(), sum)
	default:
		return err
	}
}
