package hostile

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/testenv"
)

// replicaTargets starts n replicas, and returns the one that leads and the others.
func replicaTargets(t *testing.T, n int, flags ...string) (leader *target, standbys []*target) {
	t.Helper()
	c := testenv.Shared(t)
	options := replica.Options{Credentials: replica.Deploy(t, c), PeerToken: replica.PeerToken(t, c), Flags: flags}
	var replicas []*target
	for range n {
		r := start(t, c, options)
		t.Cleanup(func() {
			ctx, cancel := await.Context(t)
			defer cancel()
			wantWithinLimit(t, r)
			_ = r.Stop(ctx) // so that the next test finds no leader
		})
		replicas = append(replicas, &target{cluster: c, config: r.Config, pid: r.PID, eventd: r})
	}
	return waitLeader(t, replicas)
}

// waitLeader waits until one replica leads and all others are ready.
func waitLeader(t *testing.T, replicas []*target) (leader *target, standbys []*target) {
	t.Helper()
	await.Until(t, "one replica to lead, and the others to be ready", func() bool {
		leader, standbys = nil, nil
		for _, g := range replicas {
			switch role := g.role(t); {
			case role == "leader":
				leader = g
			case strings.HasPrefix(role, "standby of "):
				standbys = append(standbys, g)
			}
		}
		return leader != nil && len(standbys) == len(replicas)-1
	})
	return leader, standbys
}

// role is that of a replica that is ready, "" before.
func (g *target) role(t *testing.T) string {
	t.Helper()
	anonymous := rest.AnonymousClientConfig(g.cluster.Config())
	a := request.Do(t.Context(), g.eventd.Client(t, anonymous), http.MethodGet, g.eventd.URL("/readyz?verbose"), "")
	_, role, _ := strings.Cut(a.Body, "role: ")
	if a.Code != http.StatusOK {
		return ""
	}
	return strings.TrimSpace(role)
}

// The leader must not close the connection of a standby because of a client's request.
func TestClientOfAStandbyClosesNobodyElsesConnectionToTheLeader(t *testing.T) {
	_, standbys := replicaTargets(t, 2)
	g := standbys[0]
	attacker := g.account(t, "attacker", "create")
	config := rest.CopyConfig(attacker.config)
	config.DisableCompression = true // its header is not passed on, and others are added
	config.Dial = (&net.Dialer{}).DialContext
	large := newAccount(t, config, attacker.namespace)
	var sent, passed, refused atomic.Int64
	siege{allowed: usual, attack: func(ctx context.Context) {
		crowd(ctx, 4, 40, func() {
			// Some are just below the limit at the standby, and with what it adds above it.
			a := large.postEvent(ctx, large.event("x", "x", "Normal", 1), "X", strings.Repeat("x", 10_000+int(sent.Add(1)*13%2500)))
			switch {
			case a.Code == http.StatusRequestHeaderFieldsTooLarge:
				refused.Add(1)
			case a.Code > 0 && a.Code < 300 || a.Code == http.StatusConflict:
				passed.Add(1)
			}
		})
	}}.run(t, g)
	if passed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("the standby let %d requests pass, and refused %d: none is near the limit", passed.Load(), refused.Load())
	}
	m := g.metrics(t)
	if refused := m.Sum("eventd_relay_requests_total", "code=431"); refused > 0 {
		t.Errorf("the leader has refused %v requests for headers that the standby had let pass", refused)
	}
	if lost := m.Sum("eventd_relay_retries_total") + m.Sum("eventd_relay_refused_total"); lost > 0 {
		t.Errorf("%v requests found no connection to the leader", lost)
	}
}
