package election

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestReleaseHandsOverWithinAnInstant(t *testing.T) {
	c := newContest(t)
	leader := c.lead("replica-0")
	var took []time.Duration
	for n := range 20 {
		standby := c.start(fmt.Sprint("replica-", n+1))
		standby.awaitLeader(leader.Identity())
		stopped := time.Now()
		leader.cancel()
		took = append(took, standby.awaitTerm().Sub(stopped))
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

// cut is a transport that sends no request after cutOff is closed: requests end with
// their contexts.
type cut struct {
	http.RoundTripper
	cutOff <-chan struct{}
}

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-c.cutOff:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		return c.RoundTripper.RoundTrip(r)
	}
}

func TestLeaseOfALeaderThatIsCutOffIsAcquiredWhenItHasExpired(t *testing.T) {
	c := newContest(t)
	connected, cutOff := c, make(chan struct{})
	c.config = rest.CopyConfig(c.config)
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cut{next, cutOff} })
	leader := c.lead("leader", shortLease)
	standby := connected.start("standby", shortLease)
	want := Leader{"leader", announcementOf("leader")}
	if read := standby.awaitLeader("leader"); read != want || leader.Leader() != want {
		t.Errorf("the standby reads %+v, the leader %+v, want %+v", read, leader.Leader(), want)
	}
	at := time.Now()
	close(cutOff)
	began := standby.awaitTerm()
	if leader.Leading() {
		t.Error("two leaders")
	}
	if l := standby.Leader(); l != (Leader{"standby", announcementOf("standby")}) {
		t.Errorf("the leader is %+v", l)
	}
	// The last renewal was made up to a retry period before.
	took := began.Sub(at)
	t.Logf("acquired after %s", took)
	if took < 2*time.Second || took > 5*time.Second {
		t.Errorf("acquired after %s, of a lease of 3s", took)
	}
}

func TestElectorWorksWithTheLocksOfClientGo(t *testing.T) {
	for name, lockOf := range map[string]func(c contest, identity string) resourcelock.Interface{
		"LeaseLock": func(c contest, identity string) resourcelock.Interface { return c.foreignLock(leaseName, identity) },
		"MultiLock": func(c contest, identity string) resourcelock.Interface {
			return &resourcelock.MultiLock{Primary: c.foreignLock("old", identity), Secondary: c.foreignLock(leaseName, identity)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			with := func(identity string) func(*Options) { return func(o *Options) { o.Lock = lockOf(c, identity) } }
			a := c.lead("a", with("a"))
			b := c.start("b", with("b"))
			b.awaitLeader("a")
			a.stop()
			b.awaitTerm()
		})
	}
}
