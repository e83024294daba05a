package relay_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

func TestPlannedHandoverIsNotSeenByClients(t *testing.T) {
	var replicas [3]*replica
	var at [3]*listening
	for i := range replicas {
		// So that no handover fails on a machine that is busy.
		replicas[i] = newReplica(t, options{leaderWait: 25 * time.Second})
		at[i] = listen(t, replicas[i])
	}
	// elect names the leader to the others, and has it lead, in any order.
	elect := func(leader int) {
		var named sync.WaitGroup
		named.Go(func() { at[leader].leads(replicas[(leader+1)%3], replicas[(leader+2)%3]) })
		replicas[leader].lead(t)
		named.Wait()
	}
	elect(0)
	const clients, each, handovers = 8, 60, 6
	var posted atomic.Int64
	var done sync.WaitGroup
	for n := range clients {
		done.Go(func() {
			for i := range each {
				r := replicas[posted.Add(1)%3]
				if a := r.Post(t, classic(fmt.Sprintf("a-%d-%d", n, i), 1)); a.Code != 201 {
					t.Errorf("a client is answered %d: %s", a.Code, a.Body)
				}
			}
		})
	}
	for n := range handovers {
		await.Until(t, "there is load", func() bool { return posted.Load() >= int64(clients*each*n/handovers) })
		replicas[n%3].resign()
		for _, r := range replicas {
			r.relay.SetLeader("", "")
		}
		elect((n + 1) % 3)
	}
	done.Wait()
	times := map[string]int{}
	for i, r := range replicas {
		for _, o := range r.Pipeline.Occurrences() {
			times[o.Client]++
		}
		if r.Metric(t, "eventd_relay_requests_total", "201") == 0 {
			t.Errorf("replica %d has forwarded nothing", i)
		}
	}
	if len(times) != clients*each {
		t.Errorf("recorded %d names of %d", len(times), clients*each)
	}
	for name, n := range times {
		if n != 1 {
			t.Errorf("%s was recorded %d times", name, n)
		}
	}
}
