package ha

import (
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// fault befalls the leader again and again under load, and each time another replica leads.
type fault struct {
	full, short int
	// begin makes it the i-th time. replaced is when the leader can no longer lead. end is
	// called when another one does.
	begin func(l *load, leader *member, i int) (replaced time.Time, end func())
	// hangs: requests may, until their clients give up.
	hangs bool
	// accepts is for how long the leader may accept occurrences after begin. It is 0 if the fault
	// ends the process.
	accepts time.Duration
}

// stand is a time that a leader stood still, was cut off or restarted.
type stand struct {
	before
	began, ended time.Time
	struck       time.Time // when the fault has befallen it for certain
}

const (
	// staleness is how far the count of a series may be behind while it has budget
	// (docs/correlation.md), and so the greatest age of what a leader has pending.
	staleness = 30 * time.Second
	// longTermEvery is the number of terms per one that is longer than that: a short term has
	// nothing pending that is older than itself.
	longTermEvery = 5
)

// wantNothingLost checks that under 500 occurrences per second in a full run everything is stored
// that was acknowledged, deferred or not, and counts once; and that no two replicas lead at once.
func (f fault) wantNothingLost(t *testing.T) (first durations) {
	t.Helper()
	l := startLoadAt(t, many(), clusterOf(t), shortLease...)
	l.roles = l.watchRoles()
	crowd := l.newCrowd()
	var stands []stand
	adopted := map[*replica.Replica]float64{}
	repeat(t, f.full, f.short, func(i int) {
		if *longrun.Full && i%longTermEvery == 0 {
			l.waitPosted(time.Now().Add(staleness + 5*time.Second))
		}
		l.waitFollowed(replicas - 1)
		var s stand
		await.Until(t, "a leader has something pending", func() bool { // beside heavy load, one may be replaced meanwhile
			s.before = l.observe()
			crowd.post()
			return s.leader.read("eventd_occurrences_pending") > 0
		})
		s.began = time.Now()
		replaced, end := f.begin(l, s.leader, i)
		s.struck = time.Now()
		first = append(first, l.waitTaken(s.before, replaced).at.Sub(replaced))
		end()
		l.waitWrite()
		leader, n := l.waitAdopted()
		if adopted[leader.process()] = n; n == 0 && f.accepts == 0 {
			t.Errorf("%s has written nothing of what the leader before had pending", leader.name)
		}
		s.ended = time.Now()
		stands = append(stands, s)
	})
	var o outcome
	// The requests of a whole lease are answered together, in a full run some at their own deadline.
	mayTimeOut := f.hangs || *longrun.Full
	if f.accepts == 0 {
		o = l.end(t, mayTimeOut)
		l.wantAllStored(t, o)
	} else {
		o = l.finish(t, mayTimeOut)
		l.wantNoneTooLate(t, stands, f.accepts)
	}
	crowd.wantStored(t, l.cluster)
	sum := 0.
	for _, n := range adopted {
		sum += n
	}
	n, perSecond, took := l.undisturbed(stands)
	timedOut := o.seen.sum(func(a answer) bool { return a.code == http.StatusGatewayTimeout })
	longrun.Report(t, "%d posts, %.0f per second; 202 for %d, after %s (p50), %s (p99) without a fault; %d timed out; %v occurrences adopted; first write of the new leader after %s (p50), %s (p99)",
		n, perSecond, o.deferred, took.percentile(50), took.percentile(99), timedOut, sum, first.percentile(50), first.percentile(99))
	if *longrun.Full && perSecond < .95*float64(many().all) {
		t.Errorf("%.0f occurrences are posted per second, want %d", perSecond, many().all)
	}
	return first
}

// crowd are more clients of each series than its Event stores names of. So only the shares say what
// is counted of them. Their names are generated, so that a retry would be another occurrence.
type crowd struct {
	*deferred
	mu     sync.Mutex
	unsure counts // of which a request was refused or not answered
}

func (f *fleet) newCrowd() *crowd { return &crowd{deferred: f.newDeferred(1), unsure: counts{}} }

// post posts the occurrences of some series, each once.
func (u *crowd) post() {
	var clients errgroup.Group
	clients.SetLimit(64)
	for i := range 4 * 3 * window {
		of := u.all[i%4]
		clients.Go(func() error {
			event := occurrenceOf(u.namespace, u.begin(of))
			event.Name, event.GenerateName = "", "crowd-"
			if err := u.client.Post().Namespace(u.namespace).Resource("events").Body(event).Do(u.ctx).Error(); err != nil {
				u.mu.Lock()
				defer u.mu.Unlock()
				u.unsure[of]++
			}
			return nil
		})
	}
	_ = clients.Wait() // no error
}

// wantStored checks that each series has one Event, which counts all that was acknowledged, and
// nothing twice.
func (u *crowd) wantStored(t *testing.T, cluster *testenv.ControlPlane) {
	t.Helper()
	events := storedBy(t, cluster, u.namespace, source)
	got := stored.Tally(events, seriesOf)
	_, posted := u.ledger()
	for of, n := range posted {
		if least := n - u.unsure[of]; got[of] < least || got[of] > n {
			t.Errorf("%v counts %d, and %d of %d are acknowledged", of, got[of], least, n)
		}
	}
	if len(events) != len(got) {
		t.Errorf("%d series have %d Events", len(got), len(events))
	}
}

// waitAdopted waits until the leader has written what former leaders have left, and returns how
// much its process has adopted so far.
func (l *load) waitAdopted() (leader *member, adopted float64) {
	l.t.Helper()
	await.Until(l.t, "a leader that holds nothing of former ones", func() bool {
		leader, _ = l.leader() // a short lease may be lost meanwhile
		return leader.read("eventd_held_occurrences") == 0
	})
	return leader, leader.read("eventd_occurrences_adopted_total")
}

// wantAdopted is waitAdopted when there is something to adopt.
func (l *load) wantAdopted() {
	l.t.Helper()
	if leader, n := l.waitAdopted(); n == 0 {
		l.t.Errorf("%s has written nothing of what the leader before had pending", leader.name)
	}
}

// undisturbed returns the number of all posts, their rate, and how long those took that were
// acknowledged with 202 and met no fault.
func (l *load) undisturbed(stands []stand) (n int, perSecond float64, took durations) {
	posts, _ := l.ledger()
	first, last := time.Now(), time.Time{}
	for _, made := range posts {
		if made.began.Before(first) {
			first = made.began
		}
		if made.began.After(last) {
			last = made.began
		}
		met := slices.ContainsFunc(stands, func(s stand) bool { return made.began.Before(s.ended) && made.acked.After(s.began) })
		if made.code == http.StatusAccepted && !met {
			took = append(took, made.acked.Sub(made.began))
		}
	}
	return len(posts), float64(len(posts)) / last.Sub(first).Seconds(), took
}

// wantNoneTooLate checks that no former leader has accepted an occurrence that was
// posted atTheLatest after it was stopped or cut off.
func (l *load) wantNoneTooLate(t *testing.T, stands []stand, atTheLatest time.Duration) {
	t.Helper()
	posts, _ := l.ledger()
	var late []post
	for _, s := range stands {
		again, led := l.lease.again(s.term)
		for _, c := range l.journal.since(s.began) {
			if c.writer != s.writer || led && c.at.After(again) {
				continue
			}
			for _, key := range c.keys { // of which recorders have no posts
				if made := posts[key]; made.began.After(s.struck.Add(atTheLatest)) {
					late = append(late, made)
				}
			}
		}
	}
	if len(late) > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had expired, such as %+v", len(late), late[0])
	}
}

// kill kills the leader, and starts its next process when another one leads.
func kill(l *load, leader *member, _ int) (replaced time.Time, end func()) {
	replaced = time.Now()
	leader.signal(syscall.SIGKILL)
	<-leader.process().Done()
	return replaced, func() {
		l.service.remove(leader.name)
		leader.start()
	}
}

// The leader is killed: the next one writes what it has left.
func TestLeaderThatIsKilledLosesNothing(t *testing.T) {
	first := fault{full: 50, short: 1, begin: kill}.wantNothingLost(t)
	for percent, limit := range map[int]time.Duration{50: 3200 * time.Millisecond, 99: 4 * time.Second} {
		if took := first.percentile(percent); *longrun.Full && took > limit {
			t.Errorf("the first write of the new leader is committed after %s (p%d)", took, percent)
		}
	}
}

// The followers cannot reach the leader, so they do not hold what it accepts; every other time
// until their sessions end. Once they hold it, it is killed.
func TestLeaderThatWasCutOffFromItsFollowersIsKilled(t *testing.T) {
	fault{full: 10, short: 2, hangs: true, begin: func(l *load, leader *member, i int) (time.Time, func()) {
		leader.peers.Cut()
		await.Until(l.t, "followers that do not follow", func() bool {
			for n := range replicas - 1 {
				if i%2 == 1 && l.standby(leader, n).read("eventd_relay_sessions") > 0 {
					return false
				}
			}
			return leader.read("eventd_sink_followers", "state=complete") == 0 && leader.read("eventd_sink_unreplicated_occurrences") > 0
		})
		leader.peers.Mend()
		l.waitFollowed(replicas - 1)
		return kill(l, leader, i)
	}}.wantNothingLost(t)
}

// The followers cannot reach the leader, so they do not hold what it accepts, and it is killed
// before they can. It has answered nothing that only it holds.
func TestLeaderIsKilledWhileItsFollowersAreCutOff(t *testing.T) {
	var c cuts
	fault{full: 100, short: 1, hangs: true, begin: func(l *load, leader *member, i int) (time.Time, func()) {
		c.load = l
		began, commits := time.Now(), len(l.journal.since(time.Time{}))
		leader.peers.Cut()
		_ = await.Sleep(t.Context(), time.Second+time.Duration(i%8)*500*time.Millisecond)
		replaced, end := kill(l, leader, i)
		c.all = append(c.all, cut{began, replaced, len(l.journal.since(time.Time{})) - commits})
		leader.peers.Mend()
		return replaced, end
	}}.wantNothingLost(t)
	c.report(t)
}

// cuts are the times in which no follower reached the leader, and a load.
type cuts struct {
	load *load
	all  []cut
}

type cut struct {
	began, ended time.Time
	writes       int
}

// report reports the latency of the posts that were acknowledged during the cuts, with all of their
// tries, beside that of the others, and the writes meanwhile.
func (c *cuts) report(t *testing.T) {
	var during, others durations
	for _, made := range c.load.posts {
		took := made.acked.Sub(made.began)
		if slices.ContainsFunc(c.all, func(c cut) bool { return made.began.After(c.began) && made.acked.Before(c.ended) }) {
			during = append(during, took)
		} else {
			others = append(others, took)
		}
	}
	writes, seconds := 0, 0.
	for _, c := range c.all {
		writes, seconds = writes+c.writes, seconds+c.ended.Sub(c.began).Seconds()
	}
	longrun.Report(t, "%d posts were acknowledged during cuts, after %s (p50), %s (p99), at %.0f writes per second; %d others after %s (p50), %s (p99); answers %v",
		len(during), during.percentile(50), during.percentile(99), float64(writes)/seconds, len(others), others.percentile(50), others.percentile(99), c.load.service.answered())
}

// The leader is stopped for longer than its lease, and continues when another one leads: it steps
// down and accepts nothing, and its pending occurrences count once. Every other time the new
// leader has written them before it continues.
func TestLeaderThatStandsStillAddsWhatIsPendingOnce(t *testing.T) {
	fault{full: 10, short: 2, hangs: true, accepts: toStop, begin: func(l *load, leader *member, i int) (time.Time, func()) {
		_, was := l.leader()
		replaced := time.Now()
		leader.signal(syscall.SIGSTOP)
		return replaced, func() {
			if i%2 == 1 {
				l.wantAdopted()
			}
			leader.signal(syscall.SIGCONT)
			if leader.leads() {
				if _, again := l.lease.again(was); !again {
					l.t.Errorf("%s leads when it goes on", leader.name)
				}
			}
			leader.waitSettled()
		}
	}}.wantNothingLost(t)
}

// toStop is how long after SIGSTOP a process has certainly stopped. From then on it
// must accept nothing, since its lease has expired when it continues.
const toStop = 100 * time.Millisecond

// waitSettled waits until a former leader has written what it had pending.
func (m *member) waitSettled() {
	m.t.Helper()
	await.Until(m.t, m.name+" to settle what was pending", func() bool { return m.read("eventd_occurrences_pending") == 0 })
}

// The leader cannot reach the apiserver: it stops accepting before another one
// begins, and writes its pending occurrences when it can.
func TestLeaderThatIsCutOffFromTheApiserverIsReplaced(t *testing.T) {
	cutOff(false, func(m *member) []*link.Link { return []*link.Link{m.api} }).wantNothingLost(t)
}

// The leader can reach neither the apiserver nor its followers. Every other time it is back after
// these have handed over what they hold.
func TestLeaderThatIsCutOffFromEverythingIsReplaced(t *testing.T) {
	cutOff(true, func(m *member) []*link.Link { return []*link.Link{m.api, m.peers} }).wantNothingLost(t)
}

// cutOff cuts links of the leader. isolated: its followers notice.
func cutOff(isolated bool, of func(*member) []*link.Link) fault {
	return fault{full: 10, short: 2, hangs: true, accepts: shortRenewDeadline, begin: func(l *load, leader *member, i int) (time.Time, func()) {
		replaced := time.Now()
		for _, way := range of(leader) {
			way.Cut()
		}
		return replaced, func() {
			await.Until(l.t, leader.name+" steps down", func() bool { return !leader.leads() })
			if isolated && i%2 == 1 {
				l.wantAdopted()
			}
			for _, way := range of(leader) {
				way.Mend()
			}
			leader.waitSettled()
		}
	}}
}
