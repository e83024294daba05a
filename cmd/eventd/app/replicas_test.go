package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
)

func TestOneOfThreeReplicasLeadsAndAllAreReady(t *testing.T) {
	r := newReplicas(t)
	leader := r.start()
	leader.awaitLeader()
	name := r.holder()
	standbys := []*child{r.start(), r.start()}
	for _, standby := range standbys {
		standby.awaitStandby(name)
	}
	for i, replica := range append(standbys, leader) {
		replica.requireReady()
		r.post(replica, fmt.Sprintf("web.%d", i))
	}
	r.awaitCount(3)
	for i, want := range []float64{0, 0, 4} { // one is the Event of the Lease
		if n := append(standbys, leader)[i].metric("eventd_occurrences_recorded_total"); n != want {
			t.Errorf("replica %d, of which the last one leads, has recorded %v occurrences, want %v", i, n, want)
		}
	}

	standbys[0].terminate(0)
	if now := r.holder(); now != name {
		t.Errorf("%s leads after the end of a standby, %s before", now, name)
	}
	leader.signal(syscall.SIGTERM)
	standbys[1].awaitLeader()
	leader.requireExit(0)
	r.post(standbys[1], "web.4")
	r.awaitCount(4)
	standbys[1].terminate(0)
	if now := r.holder(); now != "" {
		t.Errorf("the Lease is held by %s, which has ended", now)
	}
	// Each term is recorded, by the leader of that term.
	terms := map[string]int{}
	for _, event := range stored.ByObject(t, r.cluster, r.namespace)["eventd"] {
		if event.InvolvedObject.Kind != "Lease" || event.Reason != "LeaderElection" || event.Source.Component != "eventd" {
			t.Errorf("an Event of another kind: %+v", event)
		}
		_, what, _ := strings.Cut(event.Message, " ")
		terms[what]++
	}
	if terms["became leader"] != 2 || terms["stopped leading"] != 2 || len(terms) != 2 {
		t.Errorf("the Events of the Lease: %v", terms)
	}
}

// Every replica has the rules, and the leader decides by them.
func TestLeaderEvaluatesTheIntakeRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	writeConfiguration(t, file, headOfConfiguration+"intake:\n- {name: noise, match: event.metadata.name == 'web.noise', drop: true}\n")
	r := newReplicas(t)
	leader := r.start("--config=" + file)
	leader.awaitLeader()
	standby := r.start("--config=" + file)
	standby.awaitStandby(r.holder())
	r.post(standby, "web.noise")
	r.post(standby, "web.1")
	r.awaitCount(1)
	for replica, want := range map[*child]map[string]float64{leader: {"match": 1, "no_match": 1}, standby: {}} {
		m := replica.WantMetrics(t, r.cluster)
		for _, result := range []string{"match", "no_match", "error", "over_budget"} {
			if got := m.Sum("eventd_intake_rule_evaluations_total", "rule=noise", "result="+result); got != want[result] {
				t.Errorf("%s: %v evaluations, want %v", result, got, want[result])
			}
		}
		if got := m.Sum("eventd_occurrences_settled_total", "outcome=filtered", "reason=noise"); got != want["match"] {
			t.Errorf("%v are filtered, want %v", got, want["match"])
		}
	}
	standby.terminate(0)
	leader.terminate(0)
}

// A container that is started again does not wait for the lease of its former process, which has ended. Two
// processes that run at once wait, though they share the file.
func TestRestartedLeaderLeadsAtOnce(t *testing.T) {
	r := newReplicas(t)
	flags := []string{"--leader-elect-identity-file=" + filepath.Join(t.TempDir(), "identity"), "--leader-elect-lease-duration=600s"}
	former := r.start(flags...)
	former.awaitLeader()
	beside := r.start(flags...)
	beside.awaitLog("Could not take over the identity file")
	beside.awaitStandby(r.holder())
	former.Kill()
	r.start(flags...).awaitLeader()
}

func TestFormerLeaderForwardsRequestsAfterTheHandover(t *testing.T) {
	r := newReplicas(t)
	former := r.start("--shutdown-delay-duration=20s")
	former.awaitLeader()
	next := r.start()
	next.awaitStandby(r.holder())
	former.signal(syscall.SIGTERM)
	next.awaitLeader()
	wantAnswer(t, former.config, "/readyz?verbose", http.StatusInternalServerError, "[-]shutdown failed")
	// The kubelet still probes, and would report an orderly end as a Warning (deploy/replica).
	wantAnswer(t, former.config, "/readyz?exclude=shutdown", http.StatusOK, "")
	r.post(former, "web.1")
	if n := next.metric("eventd_occurrences_recorded_total"); n != 2 { // one is the Event of the Lease
		t.Errorf("the new leader has recorded %v occurrences", n)
	}
	r.awaitCount(1)
	if answer := newCaller(t, former.config, r.namespace, http1).accepted("web.2"); !answer.last {
		t.Error("the connection is not drained during the shutdown")
	}
	former.terminate(1)
}

// As the leader it could not authenticate the other replicas.
func TestReplicaWithoutAGoodTokenIsNotElectedUntilItHasOne(t *testing.T) {
	r := newReplicas(t)
	// A token for the audience of the apiserver, not for replicas.
	o := replica.Options{Credentials: r.account, PeerToken: r.account.BearerToken, Dir: t.TempDir()}
	bad := r.startWith(o)
	bad.awaitLog("this replica's own token is not valid")
	wantAnswer(t, bad.config, "/readyz?verbose", http.StatusInternalServerError, "[-]leader failed")
	good := r.start()
	good.awaitLeader()
	r.post(good, "web.1")
	if err := os.WriteFile(filepath.Join(o.Dir, "token"), []byte(r.token), 0o600); err != nil {
		t.Fatal(err)
	}
	bad.awaitStandby(r.holder())
	r.post(bad, "web.2")
	r.awaitCount(2)
	good.terminate(0)
	bad.terminate(0)
}

// The tokens of replicas are not logged: those for each other and for the apiserver.
func TestTokensOfReplicasAreNotLogged(t *testing.T) {
	r := newReplicas(t)
	leader := r.start(mostVerbose, "--logging-format=text")
	leader.awaitLeader()
	standby := r.start(mostVerbose, "--logging-format=json")
	standby.awaitStandby(r.holder())
	r.post(standby, "web.1")
	if standby.metric("eventd_relay_requests_total") == 0 {
		t.Error("nothing was forwarded")
	}
	client := r.cluster.ServiceAccount(t, r.namespace, "client")
	wantAnswer(t, standby.Config(client), "/metrics", http.StatusForbidden, "")
	for name, c := range map[string]*child{"standby": standby, "leader": leader} {
		log := c.terminate(0)
		if !strings.Contains(log, "tokenreviews") {
			t.Errorf("the %s logs nothing about a review", name)
		}
		for whose, token := range map[string]string{"replicas'": r.token, "eventd's own": r.account.BearerToken, "client's": client.BearerToken} {
			for _, part := range strings.Split(token, ".")[1:] { // of a JWT; the header is no secret
				if len(part) < 20 || strings.Contains(log, part[len(part)-20:]) {
					t.Errorf("the %s has logged the %s token, or it is no token: %q", name, whose, part)
				}
			}
		}
	}
}

func TestStoppedProcessDoesNotLeadWhenItGoesOn(t *testing.T) {
	r := newReplicas(t)
	former := r.start(shortLease...)
	former.awaitLeader()
	next := r.start(shortLease...)
	next.awaitStandby(r.holder())
	former.signal(syscall.SIGSTOP)
	next.awaitLeader()
	holder, first := r.holder(), make(chan string, 1)
	go func() {
		_, role, _ := get(t, former.config, "/readyz?verbose")
		first <- role
	}()
	former.signal(syscall.SIGCONT)
	if role := receive(t, "the answer", first); !strings.Contains(role, "\nrole: standby") {
		t.Errorf("the former leader continues with %s", role)
	}
	former.awaitStandby(holder)
	if now := r.holder(); now != holder {
		t.Errorf("the Lease is held by %q: the former leader has cleared its successor", now)
	}
}

func TestReplicaThatIsCutOffLosesTheLeaseAndStandsByUntilItIsElectedAgain(t *testing.T) {
	r := newReplicas(t)
	former, link := r.startBehind(shortLease...)
	former.awaitLeader()
	standby := r.start(shortLease...)
	standby.awaitStandby(r.holder())

	link.Cut()
	// It can neither forward requests nor authenticate clients.
	former.awaitAnswer("/readyz?verbose", http.StatusInternalServerError, "\nrole: standby, no leader is known\n")
	standby.awaitLeader()
	r.post(standby, "web.1")
	former.awaitAnswer("/readyz?verbose", http.StatusInternalServerError, "[-]leader failed")
	wantAnswer(t, former.config, "/livez", http.StatusOK, "")
	link.Mend()
	former.awaitStandby(r.holder())
	former.requireReady()

	standby.terminate(0)
	former.awaitLeader()
	r.post(former, "web.2")
	r.awaitCount(2)
	former.terminate(0)
}

func TestReplicaThatExitsOnALostLeaseEndsInOrderWithExitCode1(t *testing.T) {
	r := newReplicas(t)
	former, link := r.startBehind(append(shortLease, "--on-lost-lease=exit", "--shutdown-grace-period=4s")...)
	former.awaitLeader()
	link.Cut()
	stderr := former.requireExit(1)
	link.Mend()
	for _, want := range []string{
		`"msg":"Lost the lease: leader work stops"`, `"msg":"Shutting down"`, `"msg":"Final accounts"`,
		`"msg":"eventd failed","err":"the leader election lease is lost`,
	} {
		if n := strings.Count(stderr, want); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", want, n, stderr)
		}
	}
}

// Its clients use other replicas meanwhile, and it may become the leader.
func TestStandbyThatCannotReachTheLeaderIsNotReadyUntilItCan(t *testing.T) {
	r := newReplicas(t)
	toLeader := link.New(t, "")
	const lease = 6 * time.Second
	timing := []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
	leader := r.start(append(timing, "--advertise-address="+toLeader.Address())...)
	toLeader.Lead(strings.TrimPrefix(leader.config.Host, "https://"))
	leader.awaitLeader()
	standby := r.start(timing...)
	standby.awaitStandby(r.holder())
	r.post(standby, "web.1")
	standby.requireReady()
	awaitUnready := func() {
		t.Helper()
		standby.awaitAnswer("/readyz/leader", http.StatusInternalServerError, "does not answer this replica")
	}

	toLeader.Cut()
	begun := time.Now()
	awaitUnready()
	if took := time.Since(begun); took > lease {
		t.Errorf("it was ready for %s, longer than a lease", took)
	}
	standby.awaitLog("does not answer this replica")
	leader.requireReady()

	toLeader.Mend()
	standby.awaitAnswer("/readyz", http.StatusOK, "")
	r.post(standby, "web.2")

	toLeader.Cut()
	awaitUnready()
	leader.Kill()
	standby.awaitLeader()
	standby.requireReady()
	r.post(standby, "web.3")
}
