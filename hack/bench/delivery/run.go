package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/eventd/eventd/test/await"
)

// run is a stream beside one side, in a cluster of its own.
type run struct {
	plan  plan
	kills int // of the process that delivers, spread over the stream
}

// result is what came of a run.
type result struct {
	tally
	usage usage  // of the process that delivers, during the stream; without kills
	load  string // of the machine, at the end
}

// perTenThousand is the CPU time of 10,000 versions.
func (r *result) perTenThousand() time.Duration {
	return r.usage.cpu * 10_000 / time.Duration(max(1, r.delivered))
}

// quiet is how long nothing comes before a stream counts as over.
const quiet = 10 * time.Second

func (r run) do(ctx context.Context, begin start) (out result, err error) {
	err = withCluster(ctx, func(c *cluster) error {
		d, err := startDestination(ctx, "bench", healthy)
		if err != nil {
			return err
		}
		defer d.close()
		s, err := begin(ctx, c, d)
		if err != nil {
			return err
		}
		defer s.end()
		if err := d.waitProbe(ctx, c.author); err != nil {
			return err
		}
		before, err := s.usage()
		if err != nil {
			return err
		}
		if err := r.stream(ctx, c.author, s); err != nil {
			return err
		}
		if err := d.waitDelivered(ctx, c.author.stored, quiet); err != nil {
			return err
		}
		out = result{tally: d.arrivals.tally(c.author.stored), load: loadAverage()}
		if r.kills == 0 {
			after, err := s.usage()
			out.usage = after.since(before)
			return err
		}
		return nil
	})
	return out, err
}

// stream writes the plan, and kills meanwhile.
func (r run) stream(ctx context.Context, a *author, s side) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var killing sync.WaitGroup
	var killErr error
	killing.Go(func() {
		if killErr = r.killAll(ctx, s); killErr != nil {
			cancel(killErr)
		}
	})
	took, err := a.write(ctx, r.plan)
	if err != nil {
		cancel(err)
	}
	killing.Wait()
	note("wrote %s in %s", r.plan, took.Round(100*time.Millisecond))
	return errors.Join(err, killErr)
}

// killAll kills once in each part of the stream.
func (r run) killAll(ctx context.Context, s side) error {
	began := time.Now()
	for i := range r.kills {
		part := r.plan.over / time.Duration(r.kills)
		if err := await.Sleep(ctx, time.Until(began.Add(part*time.Duration(i)+part/2))); err != nil {
			return err
		}
		if err := s.kill(ctx); err != nil {
			return fmt.Errorf("kill %d: %w", i+1, err)
		}
	}
	return nil
}

// note says on stderr what is done.
func note(format string, args ...any) { fmt.Fprintf(os.Stderr, "• "+format+"\n", args...) }
