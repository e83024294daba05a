package hostile

import (
	"regexp"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
)

// requestPatience is the timeout of an attacker's request.
const requestPatience = time.Second

// direct is a client of the kube-apiserver with somebody's credentials.
func direct(g *target, credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = g.cluster.Config().Host
	return config
}

var sinkShare = regexp.MustCompile(`(;s=[0-9a-v]{16}):[0-9]+`)

// inflated is an annotation of shares with the highest count of the sink.
func inflated(shares string) string {
	return sinkShare.ReplaceAllString(shares, "$1:18446744073709551615")
}

// metrics of eventd, read by the administrator.
func (g *target) metrics(t *testing.T) metrics.Metrics { return g.eventd.WantMetrics(t, g.cluster) }

// waitPendingSeries waits until the number of pending series satisfies a condition.
func (g *target) waitPendingSeries(t *testing.T, what string, ok func(pending float64) bool) {
	t.Helper()
	await.Until(t, what, func() bool { return ok(g.metrics(t).Sum("eventd_sink_pending_series")) })
}
