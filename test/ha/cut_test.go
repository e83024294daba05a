package ha

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/testenv"
)

var cutFigures = figures.NewTable("A way that is cut under load, and mended; times are p50 / p99 / max in ms",
	"cut", "lease, s", "times", "other leader", "cut to first write after it", "accepted too late",
	"occurrences", "posted again", "503 or 429 with Retry-After", "lost", "counted twice", "beyond 64 names", "504 at the client's own deadline",
	"classic recorder: recorded -lost +twice", "new-style recorder")

// cuts are repeated.
type cuts struct {
	times   progress
	first   durations
	stands  []stand
	changes int // of the leader
}

// finish ends the load and the replicas, checks that nothing is lost or counted
// twice and that never two have led, and adds the row.
func (c *cuts) finish(t *testing.T, what string, lease int, mayTimeOut bool, l *load, r *roles) {
	t.Helper()
	l.end()
	r.stop()
	l.stop()
	r.wantOneAtATime(t)
	l.wantNoFinalErrors(t, mayTimeOut)
	l.wantSettled(t)
	d := l.wantStored(t, l.cluster)
	fates := l.fates()
	fates.wantKept(t)
	if n := len(fates.forgotten); n > 0 {
		t.Errorf("%d deferred occurrences are not stored, and nobody was killed", n)
	}
	late, _ := l.tooLate(c.stands, shortRenewDeadline)
	if len(late) > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had run out, such as %+v", len(late), late[0])
	}
	classic, newStyle := l.recorded(t)
	cutFigures.Add(what, lease, c.times, c.changes, milliseconds(c.first), len(late),
		fates.names, fates.retried, l.service.answered().repeated(), d.lost, d.twice, len(fates.outside), l.service.answered().timedOut(), classic, newStyle)
}

// longCut is longer than the default lease, or at least than a standby takes to give
// up a connection on which the leader is silent, so that clients are asked to come
// again.
func longCut() time.Duration { return either(20*time.Second, 6*time.Second) }

// waitRole waits until a replica says that it is, or that it is not, the leader.
func (m *member) waitRole(leads bool) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%s leads: %t", m.name, leads), func() bool { return (m.role() == leading) == leads })
}

// The leader cannot reach the apiserver: it stops accepting before another one
// begins, and what it owes is written when it can be.
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

// A standby cannot reach the apiserver: that changes nothing for anybody else.
func TestStandbyThatIsCutOffFromTheApiserverChangesNothing(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), settling)
	l, r, c := f.startLoad(), f.watchRoles(), &cuts{}
	c.times = repeat(t, repetitions(10, 2), func(i int) {
		b := l.observe()
		standby := f.standby(b.leader, i)
		began := time.Now()
		standby.api.cut()
		first := l.waitPosted(began)
		c.first = append(c.first, first.at.Sub(began))
		l.waitPosted(began.Add(longCut()))
		standby.api.mend()
		l.waitWrite()
		if _, now := f.leader(); now != b.term {
			t.Errorf("%+v leads, and %+v did", now, b.term)
		}
	})
	c.finish(t, "standby and apiserver", 15, false, l, r)
}

// Standbys cannot reach the leader: who asks them is asked to come again, and the
// leader goes on.
func TestLeaderThatIsCutOffFromTheOthersGoesOn(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), settling)
	l, r, c := f.startLoad(), f.watchRoles(), &cuts{}
	c.times = repeat(t, repetitions(10, 2), func(int) {
		b := l.observe()
		began := time.Now()
		b.leader.peers.cut()
		first := l.waitPosted(began)
		c.first = append(c.first, first.at.Sub(began))
		l.waitPosted(began.Add(longCut()))
		b.leader.peers.mend()
		l.waitWrite()
		if _, now := f.leader(); now != b.term {
			t.Errorf("%+v leads, and %+v did", now, b.term)
		}
	})
	if l.service.answered().repeated() == 0 {
		t.Error("no client of a replica that cannot reach the leader was asked to come again")
	}
	c.finish(t, "leader and the other replicas", 15, true, l, r)
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
