package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/eventd/eventd/test/testenv"
)

// settleTimeout is how long after the feeder's end the last of what it reported
// may take to be stored, and seen by the watch.
const settleTimeout = 20 * time.Second

// show feeds eventd and shows what becomes of it until ctx ends, or the time
// that was given is over. Then it compares what eventd says with what is stored.
func show(ctx, hurry context.Context, c *cluster, e *eventd, s settings, dir string) error {
	viewing, stopViewing := context.WithCancel(hurry)
	defer stopViewing()
	stored, err := watchStored(viewing, c.client)
	if err != nil {
		return err
	}
	viewerConfig, err := c.as(ctx, viewerAccount, e.config)
	if err != nil {
		return err
	}
	meter, err := newMeter(viewerConfig)
	if err != nil {
		return err
	}
	feeder, err := startFeeder(ctx, c, e, s, dir)
	if err != nil {
		return err
	}
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	screen := newScreen(os.Stdout, title(c, e, s))
	err = watchAll(ctx, screen, meter, stored, e.process, feeder)
	screen.close()
	if err != nil {
		if !feeder.ended() {
			err = errors.Join(err, feeder.stop(hurry))
		}
		return err
	}
	say("stopping the client, and waiting until everything is settled")
	if err := feeder.stop(hurry); err != nil {
		return err
	}
	return compare(hurry, meter, stored)
}

func title(c *cluster, e *eventd, s settings) string {
	until := "Ctrl-C ends it"
	if s.duration > 0 {
		until = fmt.Sprintf("ends after %s", s.duration)
	}
	return fmt.Sprintf("client-go recorders → eventd %s → kube-apiserver %s · %s", e.config.Host, c.config.Host, until)
}

func startFeeder(ctx context.Context, c *cluster, e *eventd, s settings, dir string) (*process, error) {
	config, err := c.as(ctx, feederAccount, e.config)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "feeder.kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return start(dir, "feeder", nil, s.feeder,
		"--kubeconfig="+kubeconfig, "--namespace="+demoNamespace, fmt.Sprintf("--rate=%v", s.rate))
}

// watchAll keeps the screen up to date until ctx ends. It is an error if one of
// the processes ends before.
func watchAll(ctx context.Context, screen screen, meter *meter, stored *stored, processes ...*process) error {
	ticker := time.NewTicker(screen.interval())
	defer ticker.Stop()
	began := time.Now()
	for {
		counters, err := meter.read(ctx)
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
func compare(ctx context.Context, meter *meter, stored *stored) error {
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
		if last, err = meter.read(ctx); err != nil {
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
