package ha

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// waitFollowed waits until so many replicas hold what the leader has pending, and returns the
// leader.
func (f *fleet) waitFollowed(followers int) *member {
	f.t.Helper()
	leader, _ := f.leader()
	await.Until(f.t, fmt.Sprintf("%d followers of %s", followers, leader.name), func() bool {
		return leader.read("eventd_sink_followers", "state=complete") == float64(followers)
	})
	return leader
}

// All replicas follow the leader, whoever that is, and a process ends in order with its
// sessions.
func TestReplicasFollowTheLeader(t *testing.T) {
	f := startFleet(t, clusterOf(t), shortLease...)
	leader := f.waitFollowed(replicas - 1)
	restart := func(m *member, end func()) {
		t.Helper()
		end()
		m.start()
		leader = f.waitFollowed(replicas - 1)
		for _, m := range f.members {
			want := 1.
			if m == leader {
				want = 0
			}
			await.Until(t, m.name+" follows nobody else", func() bool { return m.read("eventd_relay_sessions") == want })
		}
	}
	terminate := func(m *member) func() {
		return func() {
			began := time.Now()
			m.signal(syscall.SIGTERM)
			m.waitEnd()
			if took := time.Since(began); took > 5*time.Second { // 2 s of it are the delay
				t.Errorf("%s ended after %s", m.name, took)
			}
		}
	}
	restart(leader, terminate(leader))
	standby := f.standby(leader, 0)
	restart(standby, terminate(standby))
	former := leader
	restart(leader, func() {
		former.kill()
		f.otherLeader(former)
	})
	f.stop()
}
