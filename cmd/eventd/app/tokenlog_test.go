package app

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// At the maximum verbosity, in both formats, reviews are logged and tokens are not.
func TestTokensAreNotLogged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		c := startChild(t, startAPIServer(t), fmt.Sprint("--v=", maxVerbosity), "--logging-format="+format)
		c.config.BearerToken = "unmistakable.token"
		if code, body, err := get(t, c.config, "/metrics"); err != nil || code != 401 {
			t.Errorf("status %d %s %v", code, body, err)
		}
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		log, _ := c.end(t)
		if !strings.Contains(log, "tokenreviews") {
			t.Errorf("%s: nothing about a review is logged", format)
		}
		if strings.Contains(log, "unmistakable") {
			t.Errorf("%s: the token is logged:\n%s", format, log)
		}
	}
}

// Nor are the tokens of replicas logged: those for each other and for the apiserver.
func TestTokensOfReplicasAreNotLogged(t *testing.T) {
	r := newReplicas(t)
	verbose := fmt.Sprint("--v=", maxVerbosity)
	start := func(format string) *child {
		c := r.start("", verbose, "--logging-format="+format)
		go func() { // there are more lines than the channel holds
			for {
				select {
				case <-c.lines:
				case <-c.ended:
					return
				}
			}
		}()
		return c
	}
	leader := start("text")
	leader.waitRole(t, "leader\n")
	standby := start("json")
	standby.waitRole(t, "standby of ")
	if err := r.report(standby, "web.1"); err != nil {
		t.Fatal(err)
	}
	if got := standby.metric(t, "eventd_relay_requests_total"); got == 0 {
		t.Error("nothing was forwarded")
	}
	client := *standby.config
	client.CertData, client.KeyData = nil, nil
	client.BearerToken = r.cluster.ServiceAccount(t, r.namespace, "client").BearerToken
	if code, body, err := get(t, &client, "/metrics"); err != nil || code != 403 {
		t.Errorf("status %d %s %v", code, body, err)
	}
	peer, err := os.ReadFile(r.token)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*child{"standby": standby, "leader": leader} {
		c.signal(t, syscall.SIGTERM)
		log := c.requireExit(t, 0)
		if !strings.Contains(log, "tokenreviews") {
			t.Errorf("the %s logs nothing about a review", name)
		}
		for whose, token := range map[string]string{"replicas'": string(peer), "eventd's own": r.account.BearerToken, "client's": client.BearerToken} {
			for _, part := range strings.Split(strings.TrimSpace(token), ".")[1:] { // of a JWT; the header is no secret
				if len(part) < 20 || strings.Contains(log, part[len(part)-20:]) {
					t.Errorf("the %s has logged the %s token, or it is no token: %q", name, whose, part)
				}
			}
		}
	}
}
