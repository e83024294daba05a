package ha

import (
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

var cutFigures = figures.NewTable("A way that is cut under load, and mended; times are p50 / p99 / max in ms",
	append([]string{"cut", "lease, s", "times", "other leader", "cut to first write after it", "accepted too late"}, endColumns...)...)

// The leader cannot reach the apiserver: it stops accepting before another one
// begins, and writes its pending occurrences when it can.
func TestLeaderThatIsCutOffFromTheApiserverIsReplaced(t *testing.T) {
	l := startLoad(t, testenv.Shared(t), shortLease...)
	l.roles = l.watchRoles()
	var stands []stand
	var first durations
	times := repeat(t, repetitions(10, 2), func(int) {
		b := l.observe()
		began := time.Now()
		b.leader.api.Cut()
		first = append(first, l.waitTaken(b, began).at.Sub(began))
		await.Until(t, b.leader.name+" steps down", func() bool { return !b.leader.leads() })
		b.leader.api.Mend()
		stands = append(stands, stand{b, began, time.Now()})
		l.waitWrite()
	})
	o, d := l.finish(t, true)
	late, _ := l.wantNoneTooLate(t, stands, shortRenewDeadline)
	addCuts("leader and apiserver", 3, times, len(stands), first, late, o.cells(d))
}

func addCuts(what string, lease int, times progress, changes int, first durations, late int, cells []any) {
	cutFigures.Add(append([]any{what, lease, times, changes, milliseconds(first), late}, cells...)...)
}

// A standby cannot reach the apiserver: nothing changes for anybody else.
func TestStandbyThatIsCutOffFromTheApiserverChangesNothing(t *testing.T) {
	cutWithoutHandover(t, "standby and apiserver", false, func(f *fleet, leader *member, i int) *link.Link { return f.standby(leader, i).api })
}

// Standbys cannot reach the leader: their clients are told to retry, and the leader
// keeps leading.
func TestLeaderThatIsCutOffFromTheOthersGoesOn(t *testing.T) {
	seen := cutWithoutHandover(t, "leader and the other replicas", true, func(_ *fleet, leader *member, _ int) *link.Link { return leader.peers })
	if seen.repeated() == 0 {
		t.Error("no client of a replica that cannot reach the leader was told to retry")
	}
}

// cutWithoutHandover cuts a link, after which the same term must continue.
func cutWithoutHandover(t *testing.T, what string, mayTimeOut bool, which func(f *fleet, leader *member, i int) *link.Link) answers {
	// A cut is longer than the default lease, or in a short run than a standby takes to
	// close a connection on which the leader is silent. So clients are told to retry.
	length := longrun.Either(20*time.Second, 6*time.Second)
	l := startLoad(t, testenv.Shared(t))
	l.roles = l.watchRoles()
	var first durations
	times := repeat(t, repetitions(10, 2), func(i int) {
		b := l.observe()
		way := which(l.fleet, b.leader, i)
		began := time.Now()
		way.Cut()
		first = append(first, l.waitPosted(began).at.Sub(began))
		l.waitPosted(began.Add(length))
		way.Mend()
		l.waitWrite()
		if _, now := l.leader(); now != b.term {
			t.Errorf("%+v leads, and %+v did", now, b.term)
		}
	})
	o, d := l.finish(t, mayTimeOut)
	addCuts(what, 15, times, 0, first, 0, o.cells(d))
	return o.seen
}
