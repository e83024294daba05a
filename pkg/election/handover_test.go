package election

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestReleaseHandsOverWithinAnInstant(t *testing.T) {
	c := newContest(t)
	leader := c.lead("replica-0")
	var took []time.Duration
	for n := range 20 {
		standby := c.start(fmt.Sprint("replica-", n+1))
		want := Leader{leader.Identity(), announcementOf(leader.Identity())}
		if standby.awaitLeader(leader.Identity()); standby.Leader() != want || leader.Leader() != want {
			t.Fatalf("the standby reads %+v, the leader %+v, want %+v", standby.Leader(), leader.Leader(), want)
		}
		stopped := time.Now()
		leader.cancel()
		standby.awaitLeader(standby.Identity())
		took = append(took, time.Since(stopped))
		leader.stop()
		leader = standby
	}
	slices.Sort(took)
	t.Logf("from the stop of the leader to the next one's term: median %s, worst %s, all %s", took[len(took)/2], took[len(took)-1], took)
	if median := took[len(took)/2]; median > 300*time.Millisecond {
		t.Errorf("median %s", median)
	}
	// The minimum time between two reads without a hint.
	if worst := took[len(took)-1]; worst >= 2*time.Second {
		t.Errorf("worst %s: the retry period was waited for", worst)
	}
}

func TestElectorWorksWithTheLockOfClientGo(t *testing.T) {
	c := newContest(t)
	with := func(identity string) func(*Options) {
		return func(o *Options) { o.Lock = c.foreignLock(leaseName, identity) }
	}
	a := c.lead("a", with("a"))
	b := c.start("b", with("b"))
	b.awaitLeader("a")
	a.stop()
	b.awaitLeader("b")
}
