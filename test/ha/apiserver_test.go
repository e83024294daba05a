package ha

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

var outageFigures = figures.NewTable("An apiserver that is killed under a leader with the default lease, and comes back; s",
	append([]string{"outage", "times", "away", "leader kept", "back to first write"}, endColumns...)...)

const (
	defaultRenewDeadline = 10 * time.Second
	defaultRetryPeriod   = 2 * time.Second
	// inTime is how long the apiserver may be away for the leader to be kept: the last
	// renewal was up to a retry period before, and the next attempt takes its time.
	inTime = defaultRenewDeadline - defaultRetryPeriod - 500*time.Millisecond
)

// inParallel is for tests with a control plane of their own, which mostly wait. A full
// run uses the machine alone.
func inParallel(t *testing.T) {
	if !*longrun.Full {
		t.Parallel()
	}
}

// The apiserver is killed and started again. If it is back in time, the leader keeps
// its lease; else there is a new term. Nothing is lost.
func TestApiserverThatIsRestartedCostsNothing(t *testing.T) {
	inParallel(t)
	cluster := testenv.StartForTest(t, testenv.Options{})
	f := startFleet(t, cluster, settling)
	l, r := f.startLoad(), f.watchRoles()
	outages := &outages{}
	outages.times = repeat(t, repetitions(5, 2), func(int) { outages.make(l, 0) })
	if *longrun.Full && outages.inTime == 0 {
		t.Errorf("the apiserver was never back within %s: %v s", inTime, outages.away)
	}
	outages.finish(t, "restarted", l, r)
}

// The apiserver is away for longer than the renew deadline: nobody leads meanwhile,
// and nothing that was accepted is lost.
func TestApiserverThatIsAwayForLongCostsNothing(t *testing.T) {
	inParallel(t)
	length := longrun.Either(time.Minute, defaultRenewDeadline+defaultRetryPeriod)
	cluster := testenv.StartForTest(t, testenv.Options{})
	f := startFleet(t, cluster, settling)
	l, r := f.startLoad(), f.watchRoles()
	outages := &outages{}
	outages.times = repeat(t, repetitions(3, 2), func(int) { outages.make(l, length) })
	outages.finish(t, fmt.Sprint("away for ", length), l, r)
}

// outages are repeated.
type outages struct {
	times      progress
	away, back []float64
	kept       int
	inTime     int // so short that the leader must keep its lease
}

// make kills the apiserver, and starts it again after some time.
func (o *outages) make(l *load, length time.Duration) {
	t := l.t
	b := l.observe()
	losses := b.leader.losses()
	began := time.Now()
	if err := l.cluster.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = await.Sleep(t.Context(), length)
	if length > defaultRenewDeadline {
		for _, m := range l.members {
			if role := m.role(); role == leading {
				t.Errorf("%s leads, and cannot have renewed its lease for %s", m.name, time.Since(began))
			}
		}
	}
	// It answers before it is ready: at some time between gone and away.
	gone := time.Since(began)
	ctx, cancel := await.Context(t)
	defer cancel()
	if err := l.cluster.Up(ctx); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	away := back.Sub(began)
	first := l.waitPosted(back)
	o.away = append(o.away, away.Seconds())
	o.back = append(o.back, first.at.Sub(back).Seconds())
	_, now := l.leader()
	// A leader that has lost the Lease, and is still its holder, continues the same term.
	kept := now == b.term && b.leader.losses() == losses
	if kept {
		o.kept++
	}
	if away < inTime {
		o.inTime++
	}
	switch {
	case away < inTime && !kept:
		t.Errorf("the apiserver was away for %s, and %+v leads instead of %+v", away, now, b.term)
	case gone > defaultRenewDeadline && kept:
		t.Errorf("the apiserver was away for at least %s, and the term of %+v goes on", gone, b.term)
	}
}

// losses is how often a replica's process has lost the Lease.
func (m *member) losses() float64 {
	m.t.Helper()
	return m.metrics().Sum("eventd_election_transitions_total", "transition=lost")
}

func (o *outages) finish(t *testing.T, what string, l *load, r *roles) {
	t.Helper()
	cells := l.finish(t, true, r)
	outageFigures.Add(append([]any{what, o.times, figures.Spread(o.away...), o.kept, figures.Spread(o.back...)}, cells...)...)
}
