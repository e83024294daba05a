package app

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/link"
)

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
