package election

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/test/fakelock"
)

func announcementOf(identity string) Announcement {
	return Announcement{Address: identity + ":443", CertificateSHA256: "5a"}
}

// reported collects the arguments of OnNewLeader. Its reader waits until the elector
// has nothing to do.
type reported []Leader

func (r *reported) collect(o *Options) {
	o.OnNewLeader = func(l Leader) { *r = append(*r, l) }
}

func TestFollowReportsTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		b.lock.Announce(announcementOf("b"))
		a.end()
		before := a.lock.Requests()
		stop := a.beginFollow()
		elapse(5 * time.Second)
		requireLeader(t, b)
		if l := a.Leader(); l != (Leader{"b", announcementOf("b")}) {
			t.Errorf("the leader is %+v", l)
		}
		b.lock.Intercept(fakelock.Fail)
		elapse(20 * time.Second)
		if l := a.Leader(); l != (Leader{}) {
			t.Errorf("the leader is %+v, whose lease has expired", l)
		}
		if after := a.lock.Requests(); after[fakelock.Update] != before[fakelock.Update] || after[fakelock.Create] != before[fakelock.Create] {
			t.Errorf("takes part: %v requests before, %v after", before, after)
		}
		stop()
	})
}

func TestFollowReportsThatTheLeaderHasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := oneReplica(t, watching)
		var seen reported
		b := newReplica(t, newLock(s, "lease", "b"), watching, seen.collect).start()
		b.end()
		stop := b.beginFollow()
		elapse(time.Second)
		a.end()
		synctest.Wait()
		if want := (reported{{Identity: "a"}, {}}); !slices.Equal(seen, want) {
			t.Errorf("reported %+v, want %+v", seen, want)
		}
		stop()
	})
}

func TestLeaderIsKnownWhileTheWorkOfALostTermEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		a.finish = time.Minute
		a.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
		elapse(30 * time.Second)
		requireLeader(t, b)
		requireStandby(t, a)
		if l := a.Leader(); l.Identity != "b" {
			t.Errorf("the leader is %+v", l)
		}
	})
}

func TestNewLeadersAreReportedOnceEachWithWhatTheyAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		start := func(identity string, change ...func(*Options)) *replica {
			l := newLock(s, "lease", identity)
			l.Announce(announcementOf(identity))
			return newReplica(t, l, change...).start()
		}
		var seen, ofA reported
		a := start("a", watching, ofA.collect)
		watcher := start("watcher", watching, seen.collect)
		elapse(time.Minute) // 30 renewals
		a.lock.Announce(announcementOf("new"))
		elapse(time.Minute)
		watcher.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
		a.end()
		elapse(time.Minute)
		b := start("b")
		elapse(time.Minute)
		b.lock.Intercept(fakelock.Fail)
		elapse(time.Minute)
		watcher.end()
		want := reported{{"a", announcementOf("a")}, {"a", announcementOf("new")}, {}, {"b", announcementOf("b")}, {}}
		if !slices.Equal(seen, want) || !slices.Equal(ofA, want[:3]) {
			t.Errorf("reported %+v, to the first leader %+v, want %+v", seen, ofA, want)
		}
	})
}

func TestRenewedReturnsTheLastRenewalOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := oneReplica(t)
		b := newReplica(t, newLock(s, "lease", "b"), watching)
		if at := b.Renewed(); !at.IsZero() {
			t.Errorf("renewed at %s, before the first read", at)
		}
		b.start()
		elapse(time.Minute)
		if ago := time.Since(b.Renewed()); ago > a.options.RetryPeriod {
			t.Errorf("renewed %s ago", ago)
		}
		a.lock.Intercept(fakelock.Hang)
		elapse(8 * time.Second)
		if ago := time.Since(b.Renewed()); ago < 8*time.Second {
			t.Errorf("renewed %s ago", ago)
		}
	})
}
