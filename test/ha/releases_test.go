package ha

import (
	"testing"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/upgrade"
)

// A leader of one release is killed when only a standby of the other one holds what it has answered 202,
// in both directions: nothing is lost, and nothing counts twice.
func TestReleasesHoldWhatTheOtherHasAnswered(t *testing.T) {
	cluster := clusterOf(t)
	x := startFleetOf(t, cluster, replica.Deploy(t, cluster), []string{upgrade.Previous(t), ""}, deferring...).startTakeovers(t)
	led := map[string]bool{}
	repeat(t, 10, 2, func(int) {
		leader := x.post(1)
		led[leader.options.Binary] = true
		leader.kill()
		x.otherLeader(leader)
		leader.start()
		x.waitStored()
	})
	if len(led) != 2 {
		t.Errorf("only one release has led: %v", led)
	}
	x.waitFollowed(1).restart()
	x.waitStored()
	x.wantAllStored(t, x.end(t, true), x.pending)
}
