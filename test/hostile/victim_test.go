package hostile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/request"
)

// victim reports ten Events a second, each of a series of its own.
type victim struct {
	*account
	posted atomic.Int64
}

const victimPeriod = 100 * time.Millisecond

// victim returns one with the rights of a recorder, in a new namespace.
func (g *target) victim(t *testing.T) *victim {
	t.Helper()
	return g.victimIn(t, g.cluster.Namespace(t))
}

func (g *target) victimIn(t *testing.T, namespace string) *victim {
	t.Helper()
	return &victim{account: g.accountIn(t, namespace, "victim", "create", "patch")}
}

// experience has the latencies and errors of a client.
type experience struct {
	took   []time.Duration
	failed []string
}

// report reports Events for some time.
func (v *victim) report(ctx context.Context, during time.Duration) experience {
	return offer(ctx, victimPeriod, during, func(ctx context.Context) request.Answer {
		return v.post(ctx, fmt.Sprintf("victim-%d", v.posted.Add(1)), "Warning")
	})
}

// offer makes a request in each period for some time. Requests do not wait for each other.
func offer(ctx context.Context, period, during time.Duration, post func(ctx context.Context) request.Answer) experience {
	ctx, cancel := context.WithTimeout(ctx, during+10*time.Second)
	defer cancel()
	var (
		mu  sync.Mutex
		out experience
		all sync.WaitGroup
	)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		all.Go(func() {
			begun := time.Now()
			a := post(ctx)
			took := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			out.took = append(out.took, took)
			if a.Err != nil || a.Code >= 300 {
				out.failed = append(out.failed, a.String())
			}
		})
	}
	all.Wait()
	slices.Sort(out.took)
	return out
}

// and returns what both have experienced.
func (e experience) and(other experience) experience {
	took := slices.Concat(e.took, other.took)
	slices.Sort(took)
	return experience{took: took, failed: slices.Concat(e.failed, other.failed)}
}

// percentile is a percentile of the latencies.
func (e experience) percentile(p int) time.Duration {
	if len(e.took) == 0 {
		return 0
	}
	return e.took[min(len(e.took)-1, len(e.took)*p/100)]
}

func (e experience) String() string {
	ms := func(p int) float64 { return e.percentile(p).Seconds() * 1000 }
	return fmt.Sprintf("%.1f, %.1f", ms(50), ms(99))
}

// limits bound the effect of an attack on a victim.
type limits struct {
	peak float64 // MiB that the process may grow by
	p99  time.Duration
}

// usual are the limits of most attacks: a second, and an eighth of the container's memory
// in deploy/. No attack may cost the victim a request.
var usual = limits{peak: 64, p99: time.Second}

// siege is an attack whose effect on a victim is bounded.
type siege struct {
	allowed limits
	// attack continues until its context ends.
	attack func(ctx context.Context)
	// lasts is the duration of the short form; 0 is a few seconds.
	lasts time.Duration
	// ready, if not nil, waits for the effect of the attack.
	ready func()
	// namespace is that of the victim; "" is a new one.
	namespace string
}

// run fails if the effect exceeds the limits. At a kube-apiserver it only measures.
func (s siege) run(t *testing.T, g *target) {
	t.Helper()
	v := g.victimIn(t, cmp.Or(s.namespace, g.cluster.Namespace(t)))
	warm := v.report(t.Context(), time.Second)
	resetPeak(t, g.pid())
	before := v.report(t.Context(), longrun.Either(10*time.Second, time.Second))
	peakBefore := peakMemory(t, g.pid())

	ctx, stop := context.WithCancel(t.Context())
	var attacking sync.WaitGroup
	defer attacking.Wait()
	defer stop()
	attacking.Go(func() { s.attack(ctx) })
	if s.ready != nil {
		s.ready()
	}
	during := v.report(t.Context(), longrun.Either(20*time.Second, cmp.Or(s.lasts, 4*time.Second)))
	stop()
	attacking.Wait()
	peak := peakMemory(t, g.pid())

	longrun.Report(t, "%d of %d requests of the victim failed; p50, p99 in ms: before %s, during %s; peak MiB: before %.0f, during %.0f",
		len(during.failed), len(during.took), before, during, peakBefore, peak)
	if g.eventd == nil {
		return
	}
	if n := len(warm.failed) + len(before.failed); n > 0 {
		t.Fatalf("%d requests failed before the attack: %v", n, append(warm.failed, before.failed...))
	}
	if len(during.failed) > 0 {
		t.Errorf("%d of %d requests of the victim failed, the first: %s", len(during.failed), len(during.took), during.failed[0])
	}
	if p99 := during.percentile(99); p99 > s.allowed.p99 {
		t.Errorf("p99 of the victim is %s, and was %s", p99, before.percentile(99))
	}
	if peak > min(peakBefore+s.allowed.peak, limitMiB) {
		t.Errorf("memory has reached %.0f MiB, from %.0f", peak, peakBefore)
	}
}

// both attacks eventd, and in full runs the kube-apiserver for comparison.
func both(t *testing.T, f func(t *testing.T, g *target)) {
	t.Run("eventd", func(t *testing.T) { f(t, eventdTarget(t)) })
	if *longrun.Full {
		t.Run("kube-apiserver", func(t *testing.T) { f(t, apiserverTarget(t)) })
	}
}

// crowd calls f from n goroutines at the given rate until ctx ends. Without a rate the
// attackers would take the processors, which they share with the target.
func crowd(ctx context.Context, n int, perSecond float64, f func()) {
	limiter := rate.NewLimiter(rate.Limit(perSecond), int(perSecond)/20)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for limiter.Wait(ctx) == nil {
				f()
			}
		})
	}
	all.Wait()
}
