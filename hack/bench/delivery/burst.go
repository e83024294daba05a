package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// burst145259 is the storm of k/k#141022. All Events are new.
var burst145259 = plan{versions: 145_259, events: 145_259, over: 5 * time.Minute}

// minuteOfBurst has the same rate.
var minuteOfBurst = plan{versions: 29_040, events: 29_040, over: time.Minute}

// burst delivers a storm, and measures what the watch costs the apiserver.
func burst(ctx context.Context, w io.Writer, pairs int) error {
	note("burst: %s", burst145259)
	r, lag, err := deliverBurst(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nA burst, %s: delivered %.2f %%, missing %d, repeated %d, p50 %s, p99 %s, longest lag %s, CPU %.1f s per 10,000, peak %s; load %s\n",
		burst145259, 100*r.share(), r.missing, r.repeated, milliseconds(r.percentile(50)), milliseconds(r.percentile(99)),
		seconds(lag), r.perTenThousand().Seconds(), mebibytes(r.usage.peak), r.load)
	var with, without []usage
	for pair := range pairs {
		for i := range 2 {
			watched := (pair+i)%2 == 0
			note("kube-apiserver, watched: %v", watched)
			u, err := watchCost(ctx, watched)
			if err != nil {
				return err
			}
			if watched {
				with = append(with, u)
			} else {
				without = append(without, u)
			}
		}
	}
	writeWatchCost(w, with, without)
	return nil
}

// deliverBurst returns the longest lag too.
func deliverBurst(ctx context.Context) (out result, longest time.Duration, err error) {
	var behind *lags
	out, err = run{plan: burst145259}.do(ctx, func(ctx context.Context, c *cluster, to ...*destination) (side, error) {
		e, err := newEventd(ctx, c, 1, to)
		if err != nil {
			return nil, err
		}
		behind = e.follow(to)
		return followed{e, behind}, nil
	})
	if err != nil {
		return result{}, 0, err
	}
	return out, behind.longest("bench"), nil
}

// followed is an eventd with its lags.
type followed struct {
	*eventd
	lags *lags
}

func (f followed) end() {
	f.lags.stop()
	f.eventd.end()
}

// watchCost is what a minute of the burst costs the kube-apiserver and etcd, while eventd watches or does
// not run.
func watchCost(ctx context.Context, watched bool) (cost usage, err error) {
	err = withCluster(ctx, func(c *cluster) error {
		if watched {
			d, err := startDestination(ctx, "bench", healthy)
			if err != nil {
				return err
			}
			defer d.close()
			e, err := newEventd(ctx, c, 1, []*destination{d})
			if err != nil {
				return err
			}
			defer e.end()
			if err := d.waitProbe(ctx, c.author); err != nil {
				return err
			}
		}
		before, err := c.usage()
		if err != nil {
			return err
		}
		if _, err := c.author.write(ctx, minuteOfBurst); err != nil {
			return err
		}
		after, err := c.usage()
		cost = after.since(before)
		return err
	})
	return cost, err
}
