package ha

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

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
	away := makeOutages(t, 0, 5, 1)
	if *longrun.Full && slices.Min(away) >= inTime {
		t.Errorf("the apiserver was never back within %s: %v", inTime, away)
	}
}

// The apiserver is away for longer than the renew deadline: nobody leads meanwhile,
// and nothing that was accepted is lost.
func TestApiserverThatIsAwayForLongCostsNothing(t *testing.T) {
	makeOutages(t, longrun.Either(time.Minute, defaultRenewDeadline+defaultRetryPeriod), 3, 1)
}

func makeOutages(t *testing.T, length time.Duration, full, short int) (away []time.Duration) {
	t.Helper()
	if !*longrun.Full { // which uses the machine alone
		t.Parallel() // it mostly waits for a control plane of its own
	}
	l := startLoad(t, testenv.StartForTest(t, testenv.Options{}))
	l.roles = l.watchRoles()
	repeat(t, full, short, func(int) { away = append(away, l.makeOutage(length)) })
	l.finish(t, true)
	return away
}

// makeOutage kills the apiserver, and starts it again after some time.
func (l *load) makeOutage(length time.Duration) (away time.Duration) {
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
	away = time.Since(began)
	l.waitWrite()
	_, now := l.leader()
	// A leader that has lost the Lease, and is still its holder, continues the same term.
	kept := now == b.term && b.leader.losses() == losses
	switch {
	case away < inTime && !kept:
		t.Errorf("the apiserver was away for %s, and %+v leads instead of %+v", away, now, b.term)
	case gone > defaultRenewDeadline && kept:
		t.Errorf("the apiserver was away for at least %s, and the term of %+v goes on", gone, b.term)
	}
	return away
}

// losses is how often a replica's process has lost the Lease.
func (m *member) losses() float64 {
	m.t.Helper()
	return m.read("eventd_election_transitions_total", "transition=lost")
}

// A standby cannot reach the apiserver: nothing changes for anybody else.
func TestStandbyThatIsCutOffFromTheApiserverChangesNothing(t *testing.T) {
	cutWithoutHandover(t, false, func(f *fleet, leader *member, i int) *link.Link { return f.standby(leader, i).api })
}

// Standbys cannot reach the leader: their clients are told to retry, and the leader
// keeps leading.
func TestLeaderThatIsCutOffFromTheOthersGoesOn(t *testing.T) {
	seen := cutWithoutHandover(t, true, func(_ *fleet, leader *member, _ int) *link.Link { return leader.peers })
	if seen.sum(func(a answer) bool { return a.code >= 300 && a.retryAfter }) == 0 {
		t.Error("no client of a replica that cannot reach the leader was told to retry")
	}
}

// cutWithoutHandover cuts a link, after which the same term must continue.
func cutWithoutHandover(t *testing.T, mayTimeOut bool, which func(f *fleet, leader *member, i int) *link.Link) answers {
	// A cut is longer than the default lease, or in a short run than a standby takes to
	// close a connection on which the leader is silent. So clients are told to retry.
	length := longrun.Either(20*time.Second, 6*time.Second)
	l := startLoad(t, clusterOf(t))
	l.roles = l.watchRoles()
	repeat(t, 10, 2, func(i int) {
		b := l.observe()
		way := which(l.fleet, b.leader, i)
		began := time.Now()
		way.Cut()
		l.waitPosted(began.Add(length))
		way.Mend()
		l.waitWrite()
		if _, now := l.leader(); now != b.term {
			t.Errorf("%+v leads, and %+v did", now, b.term)
		}
	})
	return l.finish(t, mayTimeOut).seen
}
