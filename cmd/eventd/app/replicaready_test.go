package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Its clients use other replicas meanwhile, and it may become the leader.
func TestStandbyThatCannotReachTheLeaderIsNotReadyUntilItCan(t *testing.T) {
	r := newReplicas(t)
	link := newLink(t, "")
	const lease = 6 * time.Second
	timing := []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
	leader := r.start("", append(timing, "--advertise-address="+link.listener.Addr().String())...)
	link.connect(t, leader.config.Host)
	leader.waitRole(t, "leader\n")
	standby := r.start("", timing...)
	standby.waitRole(t, "standby of")
	if err := r.report(standby, "web.1"); err != nil {
		t.Error(err)
	}
	standby.requireReady(t)

	link.cut()
	begun := time.Now()
	standby.awaitUnready(t, "does not answer this replica")
	if took := time.Since(begun); took > lease {
		t.Errorf("it was ready for %s, longer than a lease", took)
	}
	standby.awaitLine(t, "does not answer this replica")
	leader.requireReady(t)

	link.restore()
	eventually(t, "it is ready again", func() bool {
		status, _, err := get(t, standby.config, "/readyz")
		return err == nil && status == http.StatusOK
	})
	if err := r.report(standby, "web.2"); err != nil {
		t.Error(err)
	}

	link.cut()
	standby.awaitUnready(t, "does not answer this replica")
	leader.signal(t, syscall.SIGKILL)
	standby.waitRole(t, "leader\n")
	standby.requireReady(t)
	if err := r.report(standby, "web.3"); err != nil {
		t.Error(err)
	}
}

// As the leader it could not authenticate the other replicas.
func TestReplicaWithoutAGoodTokenIsNotElectedUntilItHasOne(t *testing.T) {
	r := newReplicas(t)
	token := filepath.Join(t.TempDir(), "token")
	// A token for the audience of the apiserver, not for replicas.
	if err := os.WriteFile(token, []byte(r.account.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := r.start("", "--peer-token-file="+token)
	bad.awaitLine(t, "this replica's own token is not valid")
	if status, body, err := get(t, bad.config, "/readyz?verbose"); err != nil || status != http.StatusInternalServerError || !strings.Contains(body, "[-]leader failed") {
		t.Errorf("/readyz with a token of another audience: %d %s %v", status, body, err)
	}
	good := r.start("")
	good.waitRole(t, "leader\n")
	if err := r.report(good, "web.1"); err != nil {
		t.Error(err)
	}
	content, err := os.ReadFile(r.token)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, content, 0o600); err != nil {
		t.Fatal(err)
	}
	bad.waitRole(t, "standby of "+r.holder()+"\n")
	eventually(t, "a replica with a good token is ready", func() bool {
		status, _, err := get(t, bad.config, "/readyz")
		return err == nil && status == http.StatusOK
	})
	if err := r.report(bad, "web.2"); err != nil {
		t.Error(err)
	}
	r.counted(2)
	for _, replica := range []*child{good, bad} {
		replica.signal(t, syscall.SIGTERM)
		replica.requireExit(t, 0)
	}
}
