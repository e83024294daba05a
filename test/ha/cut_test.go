package ha

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

var cutFigures = figures.NewTable("A way that is cut under load, and mended; times are p50 / p99 / max in ms",
	append([]string{"cut", "lease, s", "times", "other leader", "cut to first write after it", "accepted too late"}, endColumns...)...)

// cuts are repeated.
type cuts struct {
	times   progress
	first   durations
	stands  []stand
	changes int // of the leader
}

// finish is that of the load. It also checks that no former leader has accepted
// anything, and adds the row.
func (c *cuts) finish(t *testing.T, what string, lease int, mayTimeOut bool, l *load, r *roles) {
	t.Helper()
	cells := l.finish(t, mayTimeOut, r)
	late := l.wantNoneTooLate(t, c.stands, shortRenewDeadline)
	cutFigures.Add(append([]any{what, lease, c.times, c.changes, milliseconds(c.first), late}, cells...)...)
}

// longCut is longer than the default lease, or in a short run than a standby takes to
// close a connection on which the leader is silent. So clients are told to retry.
func longCut() time.Duration { return longrun.Either(20*time.Second, 6*time.Second) }

// waitRole waits until a replica is, or is not, the leader.
func (m *member) waitRole(leads bool) {
	m.t.Helper()
	await.Until(m.t, fmt.Sprintf("%s leads: %t", m.name, leads), func() bool { return (m.role() == leading) == leads })
}

// The leader cannot reach the apiserver: it stops accepting before another one
// begins, and writes its pending occurrences when it can.
func TestLeaderThatIsCutOffFromTheApiserverIsReplaced(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), append([]string{settling}, shortLease...)...)
	l, r, c := f.startLoad(), f.watchRoles(), &cuts{}
	c.times = repeat(t, repetitions(10, 2), func(int) {
		b := l.observe()
		began := time.Now()
		b.leader.api.cut()
		taken := l.waitTaken(b, began)
		c.first = append(c.first, taken.at.Sub(began))
		c.changes++
		b.leader.waitRole(false)
		b.leader.api.mend()
		c.stands = append(c.stands, stand{b, began, time.Now()})
		l.waitWrite()
	})
	c.finish(t, "leader and apiserver", 3, true, l, r)
}

// A standby cannot reach the apiserver: nothing changes for anybody else.
func TestStandbyThatIsCutOffFromTheApiserverChangesNothing(t *testing.T) {
	cutWithoutHandover(t, "standby and apiserver", false, func(f *fleet, leader *member, i int) *link { return f.standby(leader, i).api })
}

// Standbys cannot reach the leader: their clients are told to retry, and the leader
// keeps leading.
func TestLeaderThatIsCutOffFromTheOthersGoesOn(t *testing.T) {
	l := cutWithoutHandover(t, "leader and the other replicas", true, func(_ *fleet, leader *member, _ int) *link { return leader.peers })
	if l.service.answered().repeated() == 0 {
		t.Error("no client of a replica that cannot reach the leader was told to retry")
	}
}

// cutWithoutHandover cuts a link, after which the same term must continue.
func cutWithoutHandover(t *testing.T, what string, mayTimeOut bool, which func(f *fleet, leader *member, i int) *link) *load {
	f := startFleet(t, testenv.Shared(t), settling)
	l, r, c := f.startLoad(), f.watchRoles(), &cuts{}
	c.times = repeat(t, repetitions(10, 2), func(i int) {
		b := l.observe()
		way := which(f, b.leader, i)
		began := time.Now()
		way.cut()
		first := l.waitPosted(began)
		c.first = append(c.first, first.at.Sub(began))
		l.waitPosted(began.Add(longCut()))
		way.mend()
		l.waitWrite()
		if _, now := f.leader(); now != b.term {
			t.Errorf("%+v leads, and %+v did", now, b.term)
		}
	})
	c.finish(t, what, 15, mayTimeOut, l, r)
	return l
}

// standby is one of the replicas that do not lead.
func (f *fleet) standby(leader *member, n int) *member {
	var all []*member
	for _, m := range f.members {
		if m != leader {
			all = append(all, m)
		}
	}
	return all[n%len(all)]
}
