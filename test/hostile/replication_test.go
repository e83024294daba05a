package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
)

// Who may create Events in a namespace, and has a webhook there that hangs, has as much pending as it
// may. The reports of others are held by a follower all the same.
func TestTenantKeepsNoOtherFromBeingReplicated(t *testing.T) {
	for name, test := range map[string]struct {
		event func(a *account, n int64) string
		full  func(m metrics.Metrics) bool
	}{
		"large Events": {func(a *account, n int64) string {
			name := fmt.Sprint("large-", n)
			return strings.Replace(a.event(name, name, "Warning", 1), "said of", strings.Repeat("x", 60<<10), 1)
		}, func(m metrics.Metrics) bool {
			return m.Sum("eventd_sink_pending_bytes") > .95*m.Sum("eventd_sink_pending_bytes_capacity")
		}},
		"names of one series": {func(a *account, n int64) string {
			return a.event(fmt.Sprint("name-", n), "web-0", "Warning", 1)
		}, func(m metrics.Metrics) bool {
			return m.Sum("eventd_occurrences_settled_total", "reason=pending_full") > 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, standbys := replicaTargets(t, 2, "--write-timeout=1m", "--shutdown-grace-period=1s")
			attacker := g.account(t, "attacker", "create")
			g.cluster.HangingWebhook(t, attacker.namespace)
			followers := func(m metrics.Metrics) float64 { return m.Sum("eventd_sink_followers", "state=complete") }
			await.Until(t, "the standby to follow", func() bool { return followers(g.metrics(t)) == 1 })
			var posted, accepted atomic.Int64
			flood := func(ctx context.Context) {
				crowd(ctx, 64, 2000, func() {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					if a := attacker.postEvent(ctx, test.event(attacker, posted.Add(1))); a.Code == http.StatusAccepted {
						accepted.Add(1)
					}
				})
			}
			siege{allowed: limits{peak: 512, p99: time.Second}, attack: flood, ready: func() {
				await.Until(t, "the attacker to have all that it may", func() bool {
					m := g.metrics(t)
					return test.full(m) || followers(m) == 0
				})
			}}.run(t, g)
			t.Logf("%d of %d requests of the attacker were accepted", accepted.Load(), posted.Load())
			if strings.Contains(standbys[0].eventd.Stderr(), "This replica does not hold what the leader accepts") {
				t.Fatal("the standby has ended its stream")
			}
			await.Until(t, "all that is pending to be held", func() bool {
				m := g.metrics(t)
				return followers(m) == 1 && m.Sum("eventd_sink_unreplicated_occurrences") == 0
			})
		})
	}
}
