package ha

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
)

// takeovers are a load, and occurrences that each leader leaves to the next one, since their
// writes are deferred for hours. A proxy before the apiserver can hold up the writes of these.
type takeovers struct {
	*load
	proxy   *faultproxy.Proxy
	pending *deferred
	writes  *journal // of pending
}

// deferring are flags by which all but one write about each object are deferred, for as long as a test takes, and a
// leader keeps the Lease on a starved machine, too: these tests choose their leaders.
var deferring = append([]string{
	"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms",
}, deferAll...)

// startTakeovers starts a load of a fleet, and posts nothing of pending.
func (f *fleet) startTakeovers(t *testing.T) *takeovers {
	t.Helper()
	x := &takeovers{load: f.startLoad(t, usual()), pending: f.newDeferred(longrun.Either(5000, 500))}
	x.writes = keepJournal(t, f.cluster.Config(), x.pending.namespace)
	return x
}

// startBehindProxy does so with a fleet behind a proxy.
func startBehindProxy(t *testing.T, flags ...string) *takeovers {
	t.Helper()
	cluster := clusterOf(t)
	proxy := faultproxy.New(t, cluster.Config(), 18)
	credentials := proxy.Config()
	credentials.BearerToken = replica.Deploy(t, cluster).BearerToken
	x := startFleetAt(t, cluster, credentials, slices.Concat(deferring, []string{"--write-timeout=3s"}, flags)...).startTakeovers(t)
	x.proxy = proxy
	return x
}

// post reports each series of pending once more to the leader, for whom so many replicas hold it.
func (x *takeovers) post(followers int) (leader *member) {
	x.t.Helper()
	leader = x.waitFollowed(followers)
	x.pending.postAll(x.pending.all)
	return leader
}

// holdUp lets a third of the writes happen at once, a third without an answer, and the others not.
func (x *takeovers) holdUp() {
	pending := faultproxy.Match{Namespace: x.pending.namespace}
	x.proxy.SetRules(
		faultproxy.Rule{Match: pending, Probability: 1. / 3, Fault: faultproxy.BeforeWrite(faultproxy.Hang)},
		faultproxy.Rule{Match: pending, Probability: 1. / 2, Fault: faultproxy.AfterWrite(faultproxy.Hang)},
	)
}

// waitMidway waits until a leader has begun to write what former ones have left.
func (x *takeovers) waitMidway(leader *member, began time.Time) {
	x.t.Helper()
	await.Until(x.t, leader.name+" takes over", func() bool {
		return len(x.writes.since(began)) > 0 && leader.read("eventd_occurrences_adopted_total") > 0
	})
	if n := len(x.writes.since(began)); n >= len(x.pending.all) {
		x.t.Errorf("%s has written %d series: the takeover is over", leader.name, n)
	}
}

// waitAlone waits until a replica has noticed that the leader has gone.
func (x *takeovers) waitAlone(m *member) {
	x.t.Helper()
	await.Until(x.t, m.name+" follows nobody", func() bool { return m.read("eventd_relay_sessions") == 0 })
}

// elect makes one of two replicas lead: the third one cannot reach the apiserver until it does.
func (x *takeovers) elect(third, former *member, leave func()) (leader *member) {
	x.t.Helper()
	third.api.Cut()
	leave()
	leader = x.otherLeader(former)
	third.api.Mend()
	return leader
}

// waitStored waits until all of pending is stored, which no leader may have left for later.
func (x *takeovers) waitStored() {
	x.t.Helper()
	await.Until(x.t, "all that was deferred is stored", func() bool {
		posts, _ := x.pending.ledger()
		f := fatesOf(posts, x.writes.since(time.Time{}))
		return len(f.forgotten)+len(f.lost) == 0
	})
}

// handOver ends the hold-up and the last leader: then nobody has a reason to leave anything for later.
func (x *takeovers) handOver() {
	x.t.Helper()
	x.proxy.SetRules()
	x.waitFollowed(replicas - 1).restart()
	x.waitStored()
}

// A leader that dies in the middle of a takeover loses nothing that it has adopted, nor what clients
// have reported to it meanwhile, though the next one dies so too.
func TestLeaderThatIsKilledInATakeoverLosesNothing(t *testing.T) {
	x := startBehindProxy(t)
	crowd := x.newCrowd()
	repeat(t, 5, 1, func(int) {
		leader := x.post(replicas - 1)
		crowd.post()
		holder := x.standby(leader, 0)
		x.holdUp()
		for range 2 {
			began := time.Now()
			former := leader
			leader = x.elect(holder, former, former.kill)
			x.waitMidway(leader, began)
			former.start()
			x.post(replicas - 1)
		}
		x.proxy.SetRules()
		leader.kill()
		leader.start()
		x.waitStored()
	})
	x.handOver()
	x.wantAllStored(t, x.end(t, true), x.pending)
	crowd.wantStored(t, x.cluster)
}

// A replica that is terminated while nobody leads keeps what it alone holds, until the next leader has
// it.
func TestHolderThatIsTerminatedHandsOver(t *testing.T) {
	x := startBehindProxy(t) // the holder waits for two Leases, and the next leader, once it has started, for one
	repeat(t, 10, 1, func(int) {
		leader, _ := x.leader()
		next, holder := x.standby(leader, 0), x.standby(leader, 1)
		next.terminate()
		x.post(1)
		leader.kill()
		x.waitAlone(holder)
		holder.signal(syscall.SIGTERM)
		next.start()
		holder.waitEnd()
		atOnce([]*member{leader, holder}, (*member).start)
		x.waitStored()
	})
	x.handOver()
	x.wantAllStored(t, x.end(t, true), x.pending)
}

// A follower whose new session breaks off in the snapshot still has what it has acknowledged before.
func TestSnapshotThatIsCutOffLosesNothing(t *testing.T) {
	x := startBehindProxy(t)
	repeat(t, 5, 1, func(int) {
		leader, _ := x.leader()
		other, holder := x.standby(leader, 0), x.standby(leader, 1)
		other.terminate()
		x.post(1)
		leader.peers.Cut()
		x.waitAlone(holder)
		held := holder.read("eventd_held_bytes")
		await.Until(t, "a part of the snapshot", func() bool {
			if leader.peers.IsCut() {
				leader.peers.MendFor(16 << 10)
			}
			return holder.read("eventd_held_bytes") != held
		})
		leader.peers.Cut()
		if leader.read("eventd_sink_followers", "state=complete") != 0 {
			t.Error("the snapshot is complete")
		}
		leader.kill()
		leader.peers.Mend()
		x.otherLeader(leader)
		atOnce([]*member{leader, other}, (*member).start)
		x.waitStored()
	})
	x.handOver()
	x.end(t, true) // nobody has followed all leaders
	x.pending.wantStored(t, x.cluster)
}

// A leader that is elected again while another one takes over from it writes on, and what it has
// pending counts once.
func TestLeaderThatIsElectedAgainWritesOn(t *testing.T) {
	x := startBehindProxy(t)
	crowd := x.newCrowd()
	repeat(t, 5, 1, func(int) {
		first := x.post(replicas - 1)
		crowd.post()
		third := x.standby(first, 0)
		x.holdUp()
		began := time.Now()
		second := x.elect(third, first, func() {
			first.api.Cut()
			first.peers.Cut()
		})
		x.waitMidway(second, began)
		x.post(1)
		crowd.post()
		x.elect(third, second, func() {
			second.api.Cut()
			first.peers.Mend()
			first.api.Mend()
		})
		second.api.Mend()
		x.post(replicas - 1)
		x.proxy.SetRules()
	})
	x.handOver()
	x.finish(t, true, x.pending)
	crowd.wantStored(t, x.cluster)
}

// All replicas are terminated one after the other, and none has the time to write what it has pending: the
// last one has all of it.
func TestRollingRestartThatIsCutShortLosesNothing(t *testing.T) {
	x := startBehindProxy(t, "--shutdown-grace-period=3s")
	x.proxy.SetRules(faultproxy.Rule{
		Match: faultproxy.Match{Namespace: x.pending.namespace}, Probability: 1, Fault: faultproxy.BeforeWrite(faultproxy.Hang),
	})
	repeat(t, 5, 1, func(int) {
		for _, m := range x.members {
			x.post(replicas - 1)
			m.restart()
		}
	})
	if x.accounts["handed_over"] == 0 {
		t.Error("nothing was handed over")
	}
	x.handOver()
	x.finish(t, true, x.pending)
}
