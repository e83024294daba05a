package app

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestReplicaTakesOverFromALeaderThatIsKilled(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("", shortLease...)
	leader.waitRole(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.waitRole(t, "standby of")
	if err := r.report(leader, "web.1"); err != nil {
		t.Error(err)
	}
	leader.signal(t, syscall.SIGKILL)
	standby.waitRole(t, "leader\n")
	// The client received no answer for web.1, and retries.
	for _, name := range []string{"web.1", "web.2"} {
		if err := r.report(standby, name); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.counted(2)
}

func TestReplicaThatIsCutOffLosesTheLeaseAndStandsByUntilItIsElectedAgain(t *testing.T) {
	r := newReplicas(t)
	link := newLink(t, r.account.Host)
	former := r.start(link.host(), shortLease...)
	former.waitRole(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.waitRole(t, "standby of "+r.holder()+"\n")

	link.cut()
	former.waitRole(t, "standby, no leader is known\n")
	standby.waitRole(t, "leader\n")
	if err := r.report(standby, "web.1"); err != nil {
		t.Error(err)
	}
	// It can neither forward requests nor authenticate clients.
	eventually(t, "the replica that is cut off is not ready", func() bool {
		status, body, err := get(t, former.config, "/readyz?verbose")
		return err == nil && status == http.StatusInternalServerError && strings.Contains(body, "[-]leader failed")
	})
	if status, body, err := get(t, former.config, "/livez"); err != nil || status != http.StatusOK {
		t.Errorf("/livez of a replica that is cut off: %d %s %v", status, body, err)
	}
	link.restore()
	former.waitRole(t, "standby of "+r.holder()+"\n")
	former.requireReady(t)

	standby.signal(t, syscall.SIGTERM)
	standby.requireExit(t, 0)
	former.waitRole(t, "leader\n")
	if err := r.report(former, "web.2"); err != nil {
		t.Error(err)
	}
	r.counted(2)
	former.signal(t, syscall.SIGTERM)
	former.requireExit(t, 0)
}

// Deferred occurrences cannot be merged with later ones any more.
func TestReplicaThatHasLostItsLeaseWritesDeferredOccurrences(t *testing.T) {
	r := newReplicas(t)
	link := newLink(t, r.account.Host)
	former := r.start(link.host(), append(shortLease, "--series-heartbeat=24h")...)
	former.waitRole(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.waitRole(t, "standby of")
	for i := range 3 {
		if err := r.report(former, fmt.Sprintf("web.%d", i)); err != nil {
			t.Error(err)
		}
	}
	r.counted(1)
	if n := former.metric(t, "eventd_sink_deferred_series"); n != 1 {
		t.Fatalf("%v series are deferred", n)
	}
	link.cut()
	standby.waitRole(t, "leader\n")
	link.restore()
	r.counted(3)
	if n := former.metric(t, "eventd_election_leading"); n != 0 {
		t.Error("it leads again")
	}
}

func TestReplicaThatExitsOnALostLeaseEndsInOrderWithExitCode1(t *testing.T) {
	r := newReplicas(t)
	link := newLink(t, r.account.Host)
	former := r.start(link.host(), append(shortLease, "--on-lost-lease=exit", "--shutdown-grace-period=4s", "--logging-format=json")...)
	former.waitRole(t, "leader\n")
	link.cut()
	stderr := former.requireExit(t, 1)
	link.restore()
	for _, want := range []string{
		`"msg":"Lost the lease: leader work stops"`, `"msg":"Shutting down"`, `"msg":"Final accounts"`,
		`"msg":"eventd failed","err":"the leader election lease is lost`,
	} {
		if n := strings.Count(stderr, want); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", want, n, stderr)
		}
	}
}
