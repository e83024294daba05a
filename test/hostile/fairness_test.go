package hostile

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// TestFloodAtTenTimesItsShareDelaysNoOther: what both clients compete for here is
// eventd's own capacity, 2 writes of 30 to 90 ms at once, not the processors of the machine.
// One client of two offers ten times its half of that. The p99 of the other increases by
// at most 10 % or 2 ms. Other load on the machine can spoil a round, so one of a few has
// to succeed; an unfair queue spoils all of them.
func TestFloodAtTenTimesItsShareDelaysNoOther(t *testing.T) {
	const (
		slots   = 2
		latency = 60 * time.Millisecond
		share   = slots / 2 * float64(time.Second/latency) // writes per second
		rounds  = 6
	)
	c := testenv.Shared(t)
	proxy := faultproxy.New(t, replica.Deploy(t, c), 1)
	proxy.SetRules(faultproxy.Rule{Probability: 1, Fault: faultproxy.Slow(faultproxy.Uniform(latency/2, latency*3/2), nil)})
	g := startEventd(t, c, proxy.Config(), "--max-concurrent-writes="+fmt.Sprint(slots))
	v := g.victim(t)
	attacker := g.account(t, "attacker", "create")
	v.report(t.Context(), time.Second)
	var posted atomic.Int64
	for range rounds {
		during := longrun.Either(20*time.Second, 4*time.Second)
		before := v.report(t.Context(), during)
		ctx, stop := context.WithCancel(t.Context())
		var flooding sync.WaitGroup
		flooding.Go(func() {
			crowd(ctx, 500, 10*share, func() { attacker.post(ctx, fmt.Sprintf("flood-%d", posted.Add(1)), "Warning") })
		})
		flooded := v.report(t.Context(), during)
		stop()
		flooding.Wait()
		longrun.Report(t, "p50, p99 in ms: before %s, during %s", before, flooded)
		if n := len(before.failed) + len(flooded.failed); n > 0 {
			t.Fatalf("%d requests of the victim failed: %v", n, append(before.failed, flooded.failed...))
		}
		was, is := before.percentile(99), flooded.percentile(99)
		if is <= was+max(was/10, 2*time.Millisecond) {
			return
		}
		g.waitPendingSeries(t, "nothing is pending", func(pending float64) bool { return pending == 0 })
		t.Logf("p99 of the victim is %s, and was %s", is, was)
	}
	t.Errorf("the p99 of the victim increased by more than 10 %% in each of %d rounds", rounds)
}
