package election

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/test/fakelock"
)

func TestFollowCanBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(options(newLock(fakelock.NewStore(), "lease", "a")))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := e.Follow(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
}

func TestFollowReportsTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := twoReplicas(t)
		announced := Announcement{Address: "b:443", CertificateSHA256: "5a"}
		b.lock.Announces = announced
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		before := a.lock.Requests()
		following, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Follow(following) }()

		elapse(5 * time.Second)
		requireLeader(t, b)
		if l := a.Leader(); l != (Leader{"b", announced}) {
			t.Errorf("the leader is %+v", l)
		}
		if err := a.Run(t.Context(), a.lead); err == nil {
			t.Error("takes part while it follows")
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
		if err := <-ended; err != nil {
			t.Error(err)
		}
		b.end()
	})
}

func TestFollowReportsThatTheLeaderHasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a"), withWatch(s)).start()
		synctest.Wait()
		var reported []Leader
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s), func(o *Options) {
			o.OnNewLeader = func(l Leader) { reported = append(reported, l) }
		}).start()
		synctest.Wait()
		b.end()
		following, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Follow(following) }()
		elapse(time.Second)
		a.end()
		synctest.Wait()
		if want := []Leader{{Identity: "a"}, {}}; !slices.Equal(reported, want) {
			t.Errorf("reported %+v", reported)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
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
		a.end()
		b.end()
	})
}

func TestNewLeadersAreReportedOnceEachWithWhatTheyAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		var mu sync.Mutex
		var reported []Leader
		watcher := newReplica(t, newLock(s, "lease", "watcher"), withWatch(s), func(o *Options) {
			o.OnNewLeader = func(l Leader) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, l)
			}
		})
		lockOf := func(identity string) fakeLock {
			l := newLock(s, "lease", identity)
			l.Announces = Announcement{Address: identity + ":443", CertificateSHA256: "5a"}
			return l
		}
		a := newReplica(t, lockOf("a"), withWatch(s)).start()
		synctest.Wait()
		watcher.start()
		elapse(time.Minute) // 30 renewals
		watcher.lock.Intercept(fakelock.Only(fakelock.Update, fakelock.Fail))
		a.end()
		elapse(time.Minute)
		b := newReplica(t, lockOf("b")).start()
		elapse(time.Minute)
		b.lock.Intercept(fakelock.Fail)
		elapse(time.Minute)
		watcher.end()
		mu.Lock()
		defer mu.Unlock()
		want := []Leader{{"a", Announcement{"a:443", "5a"}}, {}, {"b", Announcement{"b:443", "5a"}}, {}}
		if !slices.Equal(reported, want) {
			t.Errorf("reported %+v", reported)
		}
		b.end()
	})
}

func TestRenewedReturnsTheLastRenewalOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakelock.NewStore()
		a := newReplica(t, newLock(s, "lease", "a")).start()
		synctest.Wait()
		b := newReplica(t, newLock(s, "lease", "b"), withWatch(s))
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
		a.end()
		b.end()
	})
}
