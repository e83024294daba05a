package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

// seen is a standing that follows from what an elector sees and says.
type seen struct {
	*standing
	now   election.Leader
	unfit error
}

func newSeen() *seen {
	s := &seen{}
	s.standing = &standing{
		identity: "me", patience: 15 * time.Second,
		leader: func() election.Leader { return s.now }, leading: func() bool { return s.now.Identity == "me" },
		fit: func() error { return s.unfit },
	}
	return s
}

func (s *seen) become(leader election.Leader) {
	s.now = leader
	s.leaderChanged(leader)
}

func (s *seen) want(t *testing.T, role, complaint string) {
	t.Helper()
	if got := s.role(); got != role {
		t.Errorf("role: %s, want %s", got, role)
	}
	switch err := s.check(nil); {
	case complaint == "" && err != nil:
		t.Errorf("not ready: %v", err)
	case complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)):
		t.Errorf("/readyz: %v, want %s", err, complaint)
	}
}

var (
	me    = election.Leader{Identity: "me"}
	other = election.Leader{Identity: "a", Announcement: election.Announcement{Address: "192.0.2.1:443", CertificateSHA256: "abc"}}
)

func TestReplicaIsReadyOnceItHasFoundALeader(t *testing.T) {
	s := newSeen()
	s.want(t, "standby, and nobody is known to lead", "nobody has been found to lead yet")
	s.become(other)
	s.want(t, "standby of a", "")
	s.become(me)
	s.want(t, "leader", "")
}

func TestReplicaIsReadyWhileALeaderIsSoughtButNotForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeen()
		s.become(other)
		time.Sleep(time.Hour)
		s.now = election.Leader{} // by the clock, before anybody is told
		s.want(t, "standby, and nobody is known to lead", "")
		s.leaderChanged(s.now)
		time.Sleep(15 * time.Second)
		s.want(t, "standby, and nobody is known to lead", "")
		time.Sleep(time.Nanosecond)
		s.want(t, "standby, and nobody is known to lead", "nobody has been known to lead for 15s")
		s.become(other)
		s.want(t, "standby of a", "")
	})
}

// Another kind of lock, or an edit by hand, names a holder and nothing else.
func TestReplicaIsNotReadyIfTheLeaderDoesNotSayWhereItIs(t *testing.T) {
	for name, announcement := range map[string]election.Announcement{
		"nothing": {}, "no certificate": {Address: "192.0.2.1:443"}, "no address": {CertificateSHA256: "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeen()
			s.become(election.Leader{Identity: "a", Announcement: announcement})
			s.want(t, "standby of a", "a leads, and does not say where it serves")
		})
	}
}

// A leader whose token is bad keeps no client, but is the wrong one to be asked.
func TestReplicaThatOthersDoNotBelieveIsNotReady(t *testing.T) {
	s := newSeen()
	for role, leader := range map[string]election.Leader{"leader": me, "standby of a": other} {
		s.become(leader)
		s.unfit = errors.New("its token is not good")
		s.want(t, role, "its token is not good")
		s.unfit = nil
		s.want(t, role, "")
	}
}
