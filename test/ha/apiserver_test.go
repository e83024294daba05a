package ha

import (
	"fmt"
	"slices"
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

// The apiserver is killed and started again. If it is back in time, the leader keeps
// its lease; else there is a new term. Nothing is lost.
func TestApiserverThatIsRestartedCostsNothing(t *testing.T) {
	o := makeOutages(t, "restarted", 0, repetitions(5, 2))
	if *longrun.Full && slices.Min(o.away) >= inTime.Seconds() {
		t.Errorf("the apiserver was never back within %s: %v s", inTime, o.away)
	}
}

// The apiserver is away for longer than the renew deadline: nobody leads meanwhile,
// and nothing that was accepted is lost.
func TestApiserverThatIsAwayForLongCostsNothing(t *testing.T) {
	length := longrun.Either(time.Minute, defaultRenewDeadline+defaultRetryPeriod)
	makeOutages(t, fmt.Sprint("away for ", length), length, repetitions(3, 2))
}

// outages are repeated.
type outages struct {
	away, back []float64
	kept       int
}

func makeOutages(t *testing.T, what string, length time.Duration, n int) *outages {
	t.Helper()
	if !*longrun.Full { // which uses the machine alone
		t.Parallel() // it mostly waits for a control plane of its own
	}
	l := startLoad(t, testenv.StartForTest(t, testenv.Options{}))
	l.roles = l.watchRoles()
	o := &outages{}
	times := repeat(t, n, func(int) { o.make(l, length) })
	all, d := l.finish(t, true)
	outageFigures.Add(append([]any{what, times, figures.Spread(o.away...), o.kept, figures.Spread(o.back...)}, all.cells(d)...)...)
	return o
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
			if m.leads() {
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
	o.away = append(o.away, away.Seconds())
	o.back = append(o.back, l.waitPosted(back).at.Sub(back).Seconds())
	_, now := l.leader()
	// A leader that has lost the Lease, and is still its holder, continues the same term.
	kept := now == b.term && b.leader.losses() == losses
	if kept {
		o.kept++
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
	return m.read("eventd_election_transitions_total", "transition=lost")
}
