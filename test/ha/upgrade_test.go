package ha

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/upgrade"
)

// rollouts are those of a Deployment of two replicas under load, from one release to another. It
// has the flags and the rights of deploy/, but that most writes
// are deferred, so that each replica leaves some to the next one.
type rollouts struct {
	*handovers
	out       *delivering
	more      []*recorders
	pending   *deferred
	forwarded map[pair]float64 // requests
}

// longLease is not lost on an overloaded machine. Planned handovers do not wait for its end.
var longLease = []string{"--leader-elect-lease-duration=2m", "--leader-elect-renew-deadline=90s"}

// longTimeout is longer than a request takes on an overloaded machine, so that each one is answered.
const longTimeout = time.Minute

// pair is the releases of two replicas, by their binaries.
type pair struct{ standby, leader string }

// startRollouts starts two replicas of a binary, and a load of some hundred occurrences per second.
func startRollouts(t *testing.T, binary string) *rollouts {
	t.Helper()
	const moreRecorders = 3
	cluster := clusterOf(t)
	replica.DeployObserve(t, cluster)
	r := &rollouts{forwarded: map[pair]float64{}}
	r.out = startDeliveringFleet(t, cluster, func(credentials *rest.Config, flags []string) *fleet {
		flags = slices.Concat(deferAll, longLease, []string{"--history-bytes=32Mi"}, flags)
		return startFleetOf(t, cluster, credentials, []string{binary, binary}, flags...)
	})
	r.out.fleet.timeout = longTimeout
	r.handovers = &handovers{load: r.out.fleet.startLoad(t, many())}
	r.roles = r.watchRoles()
	for range moreRecorders {
		namespace := cluster.Namespace(t)
		more := newRecorders(t, r.service.through(replica.Reporter(t, cluster, namespace)), namespace)
		r.ends = append(r.ends, more.goOn(t))
		r.more = append(r.more, more)
	}
	r.ends = append(r.ends, r.out.goOn(t, 20))
	r.pending = r.newDeferred(100)
	return r
}

// roll replaces all replicas by those of a binary, one after the other, the leader first or last.
func (r *rollouts) roll(binary string, leaderFirst bool) {
	r.load.t.Helper()
	leader, _ := r.leader()
	olds := []*member{r.standby(leader, 0), leader}
	if leaderFirst {
		slices.Reverse(olds)
	}
	for _, old := range olds {
		r.replace(old, binary)
	}
}

// replace does what a Deployment with maxSurge 1 and maxUnavailable 0 does.
func (r *rollouts) replace(old *member, binary string) {
	t := r.load.t
	t.Helper()
	next := r.newMember(binary)
	next.start()
	r.members = append(r.members, next)
	r.roles.watch(next)
	r.wantWorking()
	r.out.wantAll()
	repeated := r.out.repeated()
	b := r.observe()
	signalled := time.Now()
	old.signal(syscall.SIGTERM)
	if old == b.leader {
		r.add(b, signalled)
	}
	old.waitEnd()
	r.members = slices.DeleteFunc(r.members, func(m *member) bool { return m == old })
	r.waitWrite()
	r.out.wantAll()
	if n := r.out.repeated() - repeated; n > batch {
		t.Errorf("%d versions were delivered again, more than a batch", n)
	}
}

// wantWorking checks what the replicas do together: all standbys mirror what the leader has pending, and
// forward to it what clients report to them. All answer queries, also those that only the leader can answer.
func (r *rollouts) wantWorking() {
	t := r.load.t
	t.Helper()
	leader := r.waitFollowed(len(r.members) - 1)
	before := map[*member]float64{}
	for _, m := range r.members {
		before[m] = m.read("eventd_relay_requests_total", "code=202")
	}
	r.pending.postAll(r.pending.all)
	for m, forwarded := range before {
		if m == leader {
			continue
		}
		r.forwarded[pair{m.options.Binary, leader.options.Binary}] += m.read("eventd_relay_requests_total", "code=202") - forwarded
	}
	versions := r.versions()
	for _, m := range r.members {
		if err := await.Success(t.Context(), await.Timeout, func() error { return r.wantAnswers(m, leader, versions) }); err != nil {
			t.Errorf("queries of %s, which leads: %t: %v", m.name, m == leader, err)
		}
	}
}

// versions returns how often there is each version among the replicas that do not lead.
func (r *rollouts) versions() map[string]int {
	leader, _ := r.leader()
	all := map[string]int{}
	for _, m := range r.members {
		status := &v1alpha1.PipelineStatus{}
		if err := m.query(status, "status", "local=true"); err != nil {
			r.load.t.Fatalf("%s: %v", m.name, err)
		}
		if m != leader {
			all[status.Replica.Version]++
		}
	}
	return all
}

// wantAnswers returns what is wrong with the answers of a replica.
func (r *rollouts) wantAnswers(m, leader *member, versions map[string]int) error {
	status, explanation, timeline := &v1alpha1.PipelineStatus{}, &v1alpha1.Explanation{}, &v1alpha1.Timeline{}
	about := r.pending.all[0].object
	if err := errors.Join(
		m.query(status, "status"),
		m.query(explanation, "why", "kind=Pod", "name="+about, "namespace="+r.pending.namespace),
		m.query(timeline, "timeline", "kind=Pod", "name="+about, "namespace="+r.pending.namespace),
	); err != nil {
		return err
	}
	followers := map[string]int{}
	for _, f := range status.Followers {
		if f.Ready != nil && *f.Ready && f.Follows != nil && *f.Follows {
			followers[f.Version]++
		}
	}
	now, _ := r.lease.holder()
	switch {
	case status.Replica.Role != leading || status.Leader == nil || status.Leader.Identity != now.holder:
		return fmt.Errorf("status is of %+v, led by %+v; %s leads, %s", status.Replica, status.Leader, now.holder, leader.name)
	case !reflect.DeepEqual(followers, versions):
		return fmt.Errorf("ready followers are %v, want %v: %+v", followers, versions, status.Followers)
	case len(explanation.Steps) == 0 || explanation.Leader != now.holder:
		return fmt.Errorf("why of %s has %d steps of %s", about, len(explanation.Steps), explanation.Leader)
	case len(timeline.Items) == 0:
		return fmt.Errorf("timeline of %s is empty", about)
	}
	return nil
}

// query gets a resource of a replica as the administrator.
func (m *member) query(into any, resource string, parameters ...string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	request := kubernetes.NewForConfigOrDie(m.process().Config(m.cluster.Config())).CoreV1().RESTClient().
		Get().AbsPath("/apis/" + v1alpha1.GroupVersion.String() + "/" + resource)
	for _, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		request.Param(name, value)
	}
	answer, err := request.Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("%s: %w", resource, err)
	}
	return json.Unmarshal(answer, into)
}

// finish ends the load, and checks that no client has seen an error after which it does not retry, and
// what is stored and delivered.
func (r *rollouts) finish(t *testing.T) {
	t.Helper()
	r.stopPosting()
	for _, more := range r.more {
		more.waitSent(t)
		more.end(t)
	}
	r.recorders.waitSent(t)
	r.out.wantAll()
	r.out.wantVersions(r.journal.all())
	r.handovers.finish(t, r.pending)
	for _, more := range r.more {
		more.wantStored(t, r.cluster)
	}
	r.out.wantNoErrors(t)
	longrun.Report(t, "answers: %v; forwarded: %v; %d versions delivered, %d again",
		r.service.answered(), slices.Collect(maps.Values(r.forwarded)), len(r.out.all())+len(r.journal.all()), r.out.repeated())
}

// Two replicas of the previous release are replaced by this one, and back, each time one after the
// other, under load: nothing is lost, nothing counts twice, no client sees an error, receivers miss
// nothing, and what one release answers or stores the other one continues.
func TestUpgradeAndRollbackLoseNothing(t *testing.T) {
	previous := upgrade.Previous(t)
	const this = ""
	r := startRollouts(t, previous)
	if versions := r.versions(); len(versions) != 1 {
		t.Fatalf("there are %v", versions)
	}
	repeat(t, 10, 1, func(i int) {
		leaderFirst := i%2 == 1
		r.roll(this, leaderFirst)
		r.roll(previous, !leaderFirst)
	})
	for _, p := range []pair{{previous, this}, {this, previous}} {
		if r.forwarded[p] == 0 {
			t.Errorf("nothing was forwarded from %q to %q, of %v", p.standby, p.leader, r.forwarded)
		}
	}
	r.finish(t)
}
