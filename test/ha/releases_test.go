package ha

import (
	"flag"
	"syscall"
	"testing"

	"github.com/eventd/eventd/test/testenv"
)

var oldRelease = flag.String("old", "", "an eventd of the release before this one, to run beside it")

// Leaders of this release have standbys of the one before, which has no replication, and the other way
// round. What was answered 200 or 201 is kept. What was answered 202 is kept if the leader ends in
// order, or if a replica of this release has followed it, also when one of the other leads in between.
func TestReleaseBeforeThisOneRunsBesideIt(t *testing.T) {
	if *oldRelease == "" {
		t.Skip("needs -old")
	}
	x := startFleet(t, testenv.Shared(t), deferring...).startTakeovers(t)
	run := func(m *member, binary string) {
		m.options.Binary = binary
		m.restart()
		x.waitWrite()
	}
	leader, _ := x.leader()
	for i := range replicas - 1 {
		run(x.standby(leader, i), *oldRelease)
	}
	// Each leader has standbys of the other release.
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		b := x.observe()
		if b.leader != leader {
			t.Fatalf("%s leads, and %s did", b.leader.name, leader.name)
		}
		if end == syscall.SIGTERM {
			x.pending.postAll(x.pending.all)
			leader.terminate()
		} else {
			leader.kill()
		}
		next := x.otherLeader(leader)
		leader.start()
		x.waitWrite()
		for _, m := range x.members {
			if m != leader && m != next {
				run(m, leader.options.Binary)
			}
		}
		leader = next
	}
	follower := x.standby(leader, 0)
	run(follower, "")
	x.post(1)
	leader.kill()
	x.otherLeader(leader)
	leader.start()
	x.waitWrite()
	run(x.standby(leader, 1), "")
	x.waitFollowed(replicas - 1).restart()
	x.waitStored()
	x.end(t, true)
	x.pending.wantStored(t, x.cluster)
}
