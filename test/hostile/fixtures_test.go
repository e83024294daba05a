package hostile

import (
	"context"
	"regexp"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const sigterm = syscall.SIGTERM

// requestPatience is how long an attacker waits for an answer.
const requestPatience = time.Second

// direct is a client of the kube-apiserver with somebody's credentials.
func direct(g *target, credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = g.cluster.Config().Host
	return config
}

var sinkShare = regexp.MustCompile(`(;s=[0-9a-v]{16}):[0-9]+`)

// inflated is an annotation of shares in which the sink has counted everything that
// it will ever count.
func inflated(shares string) string {
	return sinkShare.ReplaceAllString(shares, "$1:18446744073709551615")
}

// waitPendingSeries waits until the number of pending series satisfies a condition.
func (g *target) waitPendingSeries(t *testing.T, what string, ok func(pending float64) bool) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	eventually(ctx, t, what, func() bool {
		metrics, err := g.eventd.Metrics(ctx, g.cluster.Config())
		if err != nil {
			t.Fatal(err)
		}
		return ok(metrics.Sum("eventd_sink_pending_series"))
	})
}

// eventually asks again and again, for what nothing tells of.
func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not in time: " + what)
		}
	}
}
