package hostile

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// connect keeps idle connections from an address open until ctx ends, and reopens
// those that the server closes.
func connect(ctx context.Context, t *testing.T, a *account, from string, most int) {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: a.tlsConfig(t, "h2")}
	var open stalledConns
	defer open.close()
	crowd(ctx, 16, 100, func() {
		open.mu.Lock()
		enough := len(open.conns) >= most
		open.mu.Unlock()
		if enough {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, requestPatience)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", a.hostPort())
		if err != nil {
			return // refused
		}
		open.mu.Lock()
		defer open.mu.Unlock()
		open.conns = append(open.conns, conn)
	})
}

func TestIdleConnectionsOfAnAddressKeepNobodyOut(t *testing.T) {
	const most = 600
	g := eventdTarget(t, "--max-connections=600")
	attacker := g.account(t, "attacker")
	siege{
		allowed: usual, lasts: 6 * time.Second,
		attack: func(ctx context.Context) { connect(ctx, t, attacker, "127.0.0.66", 2*most) },
		ready: func() {
			await.Until(t, "a connection of the address to be refused", func() bool { return g.metrics(t).Sum("eventd_connections_refused_total") > 0 })
			if open := g.metrics(t).Sum("eventd_connections"); open < most/4 || open > most/2 {
				t.Errorf("%v connections are open, want about a third of %d", open, most)
			}
			// Another address still gets one.
			other := attacker.anonymous(t, "127.0.0.67")
			if a := other.do(t.Context(), "GET", other.config.Host+"/readyz", ""); a.Code != 200 {
				t.Errorf("a new client on another address is answered %v", a)
			}
		},
	}.run(t, g)
}
