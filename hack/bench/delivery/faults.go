package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
)

// steady is a stream of 300 versions per second, in the proportions of a comparison.
func steady(over time.Duration) plan {
	versions := int(300 * over.Seconds())
	return plan{versions: versions, events: max(1, versions*fourThousand.events/fourThousand.versions), over: over}
}

// Of the time of a stream, the receiver that goes away is there for the first part, and returns after
// the second one: with 12 minutes, it is away for 10.
const (
	untilAway = 1. / 24
	awayFor   = 10. / 12
)

// drained bounds the time from the end of a stream to the last delivery.
const drained = 10 * time.Minute

// faults has one receiver away, one slow and one faulty, beside a healthy one, and compares that with a run
// without the others, before and after.
func faults(ctx context.Context, w io.Writer, over time.Duration) error {
	note("faults: the healthy receiver alone, %s", steady(over/12))
	before, err := healthyAlone(ctx, steady(over/12))
	if err != nil {
		return err
	}
	note("faults: %s", steady(over))
	rows, err := besideFaults(ctx, steady(over))
	if err != nil {
		return err
	}
	note("faults: the healthy receiver alone again")
	after, err := healthyAlone(ctx, steady(over/12))
	writeFaults(w, rows, []tally{before, after}, loadAverage())
	return err
}

func healthyAlone(ctx context.Context, p plan) (tally, error) {
	r, err := run{plan: p}.do(ctx, startEventd(1))
	return r.tally, err
}

// account is what eventd and a destination say of a receiver.
type account struct {
	receiver string
	tally
	superseded, gaps, givenUp int
	longest                   time.Duration
	caughtUp                  time.Duration // since it is well again, or since the end of the stream
	isUp                      bool
}

// lost is what is missing and was not given up, or the other way round.
func (a *account) lost() int { return a.missing - a.givenUp }

func besideFaults(ctx context.Context, p plan) (rows []account, err error) {
	err = withCluster(ctx, func(c *cluster) error {
		var all []*destination
		for _, d := range []struct {
			name   string
			behave behaviour
		}{{"away", healthy}, {"slow", slow}, {"faulty", faulty}, {"healthy", healthy}} {
			started, err := startDestination(ctx, d.name, d.behave)
			if err != nil {
				return err
			}
			defer started.close()
			all = append(all, started)
		}
		e, err := newEventd(ctx, c, 1, all)
		if err != nil {
			return err
		}
		defer e.end()
		for _, d := range all {
			if err := d.waitProbe(ctx, c.author); err != nil {
				return err
			}
		}
		if err := waitSettled(ctx, e); err != nil { // probes too
			return err
		}
		before, err := e.metrics(ctx)
		if err != nil {
			return err
		}
		behind := e.follow(all)
		defer behind.stop()
		back, err := streamWithOutage(ctx, c.author, p, all[0])
		if err != nil {
			return err
		}
		ended := time.Now()
		if err := waitDrained(ctx, e, all[len(all)-1], c.author.stored); err != nil {
			return err
		}
		if err := await.Sleep(ctx, 2*time.Second); err != nil { // for the last samples
			return err
		}
		after, err := e.metrics(ctx)
		if err != nil {
			return err
		}
		for i, d := range all {
			from := ended
			if i == 0 {
				from = back
			}
			rows = append(rows, accountOf(before, after, d, c.author.stored, behind, from))
		}
		return nil
	})
	return rows, err
}

// accountOf has what the metrics have grown by during the stream.
func accountOf(before, after metrics.Metrics, d *destination, s *stored, l *lags, from time.Time) account {
	read := func(name string) int {
		name, receiver := "eventd_receiver_"+name, "receiver="+d.name
		return int(after.Sum(name, receiver) - before.Sum(name, receiver))
	}
	a := account{
		receiver: d.name, tally: d.arrivals.tally(s), longest: l.longest(d.name),
		superseded: read("superseded_versions_total"), gaps: read("gaps_total"), givenUp: read("given_up_versions_total"),
	}
	a.caughtUp, a.isUp = l.caughtUp(d.name, from)
	return a
}

// streamWithOutage writes a plan while a destination goes away, and returns when it was back.
func streamWithOutage(ctx context.Context, a *author, p plan, d *destination) (back time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	part := func(of float64) time.Duration { return time.Duration(of * float64(p.over)) }
	var outage sync.WaitGroup
	var outageErr error
	outage.Go(func() {
		if outageErr = await.Sleep(ctx, part(untilAway)); outageErr != nil {
			return
		}
		d.close()
		if outageErr = await.Sleep(ctx, part(awayFor)); outageErr != nil {
			return
		}
		if outageErr = d.open(ctx); outageErr != nil {
			cancel(outageErr)
		}
		back = time.Now()
	})
	took, err := a.write(ctx, p)
	if err != nil {
		cancel(err)
	}
	outage.Wait()
	note("wrote %s in %s", p, took.Round(100*time.Millisecond))
	return back, errors.Join(err, outageErr)
}

// waitDrained waits until eventd has observed everything, and settled it for all receivers.
func waitDrained(ctx context.Context, e *eventd, healthy *destination, s *stored) error {
	if err := healthy.waitDelivered(ctx, s, quiet); err != nil {
		return err
	}
	return waitSettled(ctx, e)
}

// waitSettled waits until nothing that eventd has observed is pending.
func waitSettled(ctx context.Context, e *eventd) error {
	return await.Success(ctx, drained, func() error {
		m, err := e.metrics(ctx)
		if err != nil {
			return err
		}
		if pending := m.Sum("eventd_receiver_pending_versions"); pending > 0 {
			// Not asked for more often: that would take its CPU.
			return errors.Join(fmt.Errorf("%.0f versions are pending", pending), await.Sleep(ctx, time.Second))
		}
		return nil
	})
}
