package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// replica is a standing with a fake elector and relay.
type testStanding struct {
	*standing
	now       election.Leader
	peerError error
}

func newStanding() *testStanding {
	s := &testStanding{}
	s.standing = &standing{
		identity: "me", maxLeaderless: 15 * time.Second,
		leader: func() election.Leader { return s.now }, leading: func() bool { return s.now.Identity == "me" },
		peerReady: func() error { return s.peerError },
	}
	return s
}

func (s *testStanding) become(leader election.Leader) {
	s.now = leader
	s.setLeader(leader)
}

func (s *testStanding) want(t *testing.T, role, problem string) {
	t.Helper()
	if got := s.String(); got != role {
		t.Errorf("role: %s, want %s", got, role)
	}
	switch err := s.check(nil); {
	case problem == "" && err != nil:
		t.Errorf("not ready: %v", err)
	case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
		t.Errorf("/readyz: %v, want %s", err, problem)
	}
}

var (
	me    = election.Leader{Identity: "me"}
	other = election.Leader{Identity: "a", Announcement: election.Announcement{Address: "192.0.2.1:443", CertificateSHA256: "abc"}}
)

func TestReplicaIsReadyOnceItHasFoundALeaderAndForALimitedTimeWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStanding()
		s.want(t, "standby, no leader is known", "no leader has been found yet")
		s.become(me)
		s.want(t, "leader", "")
		s.become(other)
		time.Sleep(time.Hour)
		s.want(t, "standby of a", "")
		s.now = election.Leader{} // by the clock, before setLeader is called
		s.want(t, "standby, no leader is known", "")
		s.setLeader(s.now)
		time.Sleep(15 * time.Second)
		s.want(t, "standby, no leader is known", "")
		time.Sleep(time.Nanosecond)
		s.want(t, "standby, no leader is known", "no leader has been known for 15s")
		s.become(other)
		s.want(t, "standby of a", "")
	})
}

// Another kind of lock, or a manual edit, sets the holder only.
func TestReplicaIsNotReadyIfTheLeaderAnnouncesNoAddress(t *testing.T) {
	for name, announcement := range map[string]election.Announcement{
		"nothing": {}, "no certificate": {Address: "192.0.2.1:443"}, "no address": {CertificateSHA256: "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStanding()
			s.become(election.Leader{Identity: "a", Announcement: announcement})
			s.want(t, "standby of a", "the leader a does not announce its address")
		})
	}
}

// Other replicas reject this one, also when it leads.
func TestReplicaThatOthersRejectIsNotReady(t *testing.T) {
	s := newStanding()
	for role, leader := range map[string]election.Leader{"leader": me, "standby of a": other} {
		s.become(leader)
		s.peerError = errors.New("its token is not valid")
		s.want(t, role, "its token is not valid")
		s.peerError = nil
		s.want(t, role, "")
	}
}
