package hostile

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/testenv"
)

const (
	// loadPeriod is that of 100 reports per second, which leave two processors idle half of the time: of a busy machine,
	// the p99 is how long reports wait for a processor.
	loadPeriod = time.Second / 100
	// repeated is how many series have all the repeats.
	repeated = 50
)

// load reports repeats and new series in turn.
type load struct {
	*account
	posted atomic.Int64
}

func (l *load) report(ctx context.Context, during time.Duration) experience {
	return offer(ctx, loadPeriod, during, func(ctx context.Context) request.Answer {
		n := l.posted.Add(1)
		name, pod := fmt.Sprintf("load-%d", n), fmt.Sprintf("load-%d", n)
		if n%2 == 0 {
			pod = fmt.Sprintf("repeated-%d", n/2%repeated)
		}
		return l.postEvent(ctx, l.event(name, pod, "Normal", 1))
	})
}

// TestFiftyTailsDelayNoReport: who watches does not delay who reports, and costs nothing when gone. The tails of ten
// users get everything, one of them reads nothing, and another user has a page open. The p99 of the reports increases
// by at most 10 % or 5 ms. Other load on the machine can spoil a round, so one of a few has to succeed.
func TestFiftyTailsDelayNoReport(t *testing.T) {
	c := testenv.Shared(t)
	credentials := replica.Deploy(t, c)
	replica.DeployObserve(t, c)
	g := startEventd(t, c, credentials, "--history-bytes=64Mi")
	newAccount(t, g.config(c.Config()), "") // so that all readings of metrics share a connection: client-go keeps one only while it has a user
	l := &load{account: g.account(t, "load", "create", "patch")}
	l.report(t.Context(), 2*time.Second)
	goroutines := g.metrics(t).Sum("go_goroutines")
	a := newAudience(t, g)

	during, rounds := longrun.Either(20*time.Second, 4*time.Second), longrun.Either(20, 6)
	var allAlone, allWatched experience // of all rounds, which differ more among themselves than the two do
	for i := range rounds {
		alone := g.measure(t, l, during)
		a.open()
		watched := g.measure(t, l, during)
		a.awaitLast(l)
		allAlone, allWatched = allAlone.and(alone.experience), allWatched.and(watched.experience)
		was, is := alone.percentile(99), watched.percentile(99)
		delayed := is > was+max(was/10, 5*time.Millisecond)
		a.leave()
		if !delayed || i == rounds-1 { // the tail that reads nothing is cut, and so nothing is left of it
			g.awaitGone(t, goroutines)
		}
		a.hangUp()
		g.awaitGone(t, goroutines)

		longrun.Report(t, "p50, p99 in ms: without tails %s, with %s; processors: %.2f, %.2f; peak MiB: %.0f, %.0f",
			alone, watched, alone.processors, watched.processors, alone.peak, watched.peak)
		// What the history has gained meanwhile, Go's heap may have twice.
		if watched.peak > alone.peak+usual.peak+2*(watched.history-alone.history) {
			t.Errorf("memory has reached %.0f MiB, from %.0f", watched.peak, alone.peak)
		}
		if !delayed && !*longrun.Full {
			return
		}
		if delayed && i == rounds-1 && !*longrun.Full {
			t.Errorf("the p99 of reports increased in each of %d rounds", rounds)
		}
	}
	longrun.Report(t, "p50, p99 in ms, of all rounds: without tails %s, with %s", allAlone, allWatched)
}

// round is what was measured in some seconds.
type round struct {
	experience
	processors float64 // that eventd used
	peak       float64 // MiB
	history    float64 // MiB of the history, at the end
}

func (g *target) measure(t *testing.T, l *load, during time.Duration) round {
	t.Helper()
	resetPeak(t, g.pid())
	before, begun := g.metrics(t).Sum("process_cpu_seconds_total"), time.Now()
	out := round{experience: l.report(t.Context(), during)}
	out.processors = (g.metrics(t).Sum("process_cpu_seconds_total") - before) / time.Since(begun).Seconds()
	out.peak = peakMemory(t, g.pid())
	out.history = g.metrics(t).Sum("eventd_history_bytes") / (1 << 20)
	if len(out.failed) > 0 {
		t.Errorf("%d of %d reports failed, the first: %s", len(out.failed), len(out.took), out.failed[0])
	}
	return out
}

// awaitGone waits until no watch is open, and there are no more goroutines than before the first one but those
// of a few connections.
func (g *target) awaitGone(t *testing.T, goroutines float64) {
	t.Helper()
	const few = 20
	await.Until(t, "the watches and their goroutines have ended", func() bool {
		m := g.metrics(t)
		return m.Sum("eventd_query_watches") == 0 && m.Sum("go_goroutines") <= goroutines+few
	})
}
