package hostile

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// connect opens connections from an address until ctx ends, makes the handshake and
// then says nothing, and opens those anew that the server has closed.
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
			return // there is no room for it
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
	metric := func(name string) float64 {
		ctx, cancel := bounded(t)
		defer cancel()
		metrics, err := g.eventd.Metrics(ctx, g.cluster.Config())
		if err != nil {
			t.Fatal(err)
		}
		return metrics.Sum(name)
	}
	siege{
		name: "100 idle connections a second from one address, of 600 that there may be", needs: "a connection", allowed: usual, lasts: 6 * time.Second,
		attack: func(ctx context.Context) { connect(ctx, t, attacker, "127.0.0.66", 2*most) },
		ready: func() {
			ctx, cancel := bounded(t)
			defer cancel()
			eventually(ctx, t, "the address has all that it may", func() bool { return metric("eventd_connections_refused_total") > 0 })
			if open := metric("eventd_connections"); open < most/4 || open > most/2 {
				t.Errorf("%v connections are open, want about a third of %d", open, most)
			}
			// Who has none yet is let in.
			other := attacker.anonymousFrom(t, "127.0.0.67")
			if a := other.do(ctx, "GET", other.config.Host+"/readyz", "", ""); a.code != 200 {
				t.Errorf("a new client on another address is answered %d: %v %s", a.code, a.err, a.body)
			}
		},
	}.run(t, g)
}
