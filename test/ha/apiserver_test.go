package ha

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/testenv"
)

var outageFigures = figures.NewTable("An apiserver that is killed under a leader with the default lease, and comes back; s",
	"outage", "times", "away", "leader kept", "back to first write", "occurrences", "posted again",
	"503 or 429 with Retry-After", "lost", "counted twice", "beyond 64 names", "504 at the client's own deadline",
	"classic recorder: recorded -lost +twice", "new-style recorder")

const (
	defaultRenewDeadline = 10 * time.Second
	defaultRetryPeriod   = 2 * time.Second
	// inTime is how long the apiserver may be away for the leader to be kept: the last
	// renewal was up to a retry period before, and the next attempt takes its time.
	inTime = defaultRenewDeadline - defaultRetryPeriod - 500*time.Millisecond
)

// inParallel is for what has a control plane of its own and mostly waits. Runs in full
// have the machine for themselves.
func inParallel(t *testing.T) {
	if !*inFull {
		t.Parallel()
	}
}

// startCluster starts a control plane that can be taken away.
func startCluster(t *testing.T) *testenv.ControlPlane {
	t.Helper()
	cluster, err := testenv.Start(t.Context(), testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// The apiserver is killed and started again: who leads goes on if it is back in
// time, and else somebody leads when it is; either way nothing is lost.
func TestApiserverThatIsRestartedCostsNothing(t *testing.T) {
	inParallel(t)
	cluster := startCluster(t)
	f := startFleet(t, cluster, settling)
	l, r := f.startLoad(), f.watchRoles()
	outages := &outages{}
	outages.times = repeat(t, repetitions(5, 2), func(int) { outages.make(l, 0) })
	if *inFull && outages.inTime == 0 {
		t.Errorf("the apiserver was never back within %s: %v s", inTime, outages.away)
	}
	outages.finish(t, "restarted", l, r)
}

// The apiserver is away for a minute, or at least for longer than a leader goes on
// without it: nobody leads meanwhile, and nothing that was accepted is lost.
func TestApiserverThatIsAwayForLongCostsNothing(t *testing.T) {
	inParallel(t)
	length := either(time.Minute, defaultRenewDeadline+defaultRetryPeriod)
	cluster := startCluster(t)
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
	inTime     int // it was back so soon that the leader has to be kept
}

// make takes the apiserver away for some time, and for as long as it takes to start.
func (o *outages) make(l *load, length time.Duration) {
	t := l.t
	b := l.observe()
	losses := b.leader.losses()
	began := time.Now()
	if err := l.cluster.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(length):
	case <-t.Context().Done():
	}
	if length > defaultRenewDeadline {
		for _, m := range l.members {
			if role := m.role(); role == leading {
				t.Errorf("%s leads, and cannot have renewed its lease for %s", m.name, time.Since(began))
			}
		}
	}
	// It is there at some time between these: it answers before it is ready.
	gone := time.Since(began)
	ctx, cancel := bounded(t)
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
	// Who has lost the Lease and finds itself in it takes it as it is.
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
	l.end()
	r.stop()
	l.stop()
	r.wantOneAtATime(t)
	l.wantNoFinalErrors(t, true)
	l.wantSettled(t)
	d := l.wantStored(t, l.cluster)
	fates := l.fates()
	fates.wantKept(t)
	if n := len(fates.forgotten); n > 0 {
		t.Errorf("%d deferred occurrences are not stored, and nobody was killed", n)
	}
	classic, newStyle := l.recorded(t)
	outageFigures.Add(what, o.times, figures.Spread(o.away...), o.kept, figures.Spread(o.back...), fates.names, fates.retried,
		l.service.answered().repeated(), d.lost, d.twice, len(fates.outside), l.service.answered().timedOut(), classic, newStyle)
}
