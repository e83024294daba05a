package ha

import (
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

// The leader cannot reach the apiserver: it stops accepting before another one
// begins, and writes its pending occurrences when it can.
func TestLeaderThatIsCutOffFromTheApiserverIsReplaced(t *testing.T) {
	l := startLoad(t, testenv.Shared(t), shortLease...)
	l.roles = l.watchRoles()
	var stands []stand
	repeat(t, 10, 2, func(int) {
		b := l.observe()
		began := time.Now()
		b.leader.api.Cut()
		l.waitTaken(b, began)
		await.Until(t, b.leader.name+" steps down", func() bool { return !b.leader.leads() })
		b.leader.api.Mend()
		stands = append(stands, stand{b, began})
		l.waitWrite()
	})
	l.finish(t, true)
	l.wantNoneTooLate(t, stands, shortRenewDeadline)
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
	l := startLoad(t, testenv.Shared(t))
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
