package hostile

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
)

// recovery is within which a token is accepted among bogus ones. From then on it is known.
const recovery = 10 * time.Second

// A replica that has just begun to serve has seen no token accepted: the clients of its predecessor wait among bogus
// tokens from their own address, at the new leader or at a standby that forwards to it.
func TestFloodWithBogusTokensIsOverSoonAfterATakeover(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (before *target, takeOver func() []*target){
		"restart":             restarted,
		"SIGKILL of a leader": failedOver,
	} {
		t.Run(name, func(t *testing.T) {
			before, takeOver := start(t)
			quiet := before.victim(t).report(t.Context(), longrun.Either(10*time.Second, 2*time.Second))
			if len(quiet.failed) > 0 {
				t.Fatalf("%d requests failed before the attack: %v", len(quiet.failed), quiet.failed)
			}
			unseen := before.account(t, "unseen", "create", "patch")
			f := &tokenFlood{event: unseen.event("x", "x", "Normal", 1)}
			f.at(t, before, unseen)

			ctx, stop := context.WithCancel(t.Context())
			var attacking sync.WaitGroup
			defer attacking.Wait()
			defer stop()
			attacking.Go(func() { crowd(ctx, 600, 400, func() { f.try(ctx) }) })
			targets := takeOver()
			f.at(t, targets[0], unseen)
			f.refused.Store(0)
			await.Until(t, "all places of the address to be taken", func() bool { return f.refused.Load() > 200 })

			v := &victim{}
			for i, g := range targets {
				v.account = unseen.as(t, g)
				begun := time.Now()
				for n := 0; v.post(t.Context(), fmt.Sprintf("first-%d-%d", i, n), "Warning").Code != http.StatusCreated; n++ {
					if time.Since(begun) > recovery {
						t.Fatalf("no report is accepted within %s", recovery)
					}
				}
				recovered := time.Since(begun)
				during := v.report(t.Context(), longrun.Either(10*time.Second, 4*time.Second))
				at := [...]string{"eventd, a new leader", "eventd, a standby"}[i]
				longrun.Report(t, "%s: recovered after %s; %d of %d requests failed; p50, p99 in ms: before %s, during %s", at, recovered, len(during.failed), len(during.took), quiet, during)
				if len(during.failed) > 0 {
					t.Errorf("%s: %d of %d requests failed, the first: %s", at, len(during.failed), len(during.took), during.failed[0])
				}
				if p99 := during.percentile(99); p99 > recovery/2 {
					t.Errorf("%s: p99 is %s, and was %s", at, p99, quiet.percentile(99))
				}
			}
		})
	}
}

// restarted is a process that is killed and started again.
func restarted(t *testing.T) (before *target, takeOver func() []*target) {
	before = eventdTarget(t)
	return before, func() []*target {
		before.eventd.Kill()
		return []*target{eventdTarget(t)}
	}
}

// failedOver is a leader that is killed, the next leader, and a standby of that.
func failedOver(t *testing.T) (before *target, takeOver func() []*target) {
	before, standbys := replicaTargets(t, 3,
		"--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=1s")
	return before, func() []*target {
		before.eventd.Kill()
		leader, others := waitLeader(t, standbys)
		return append([]*target{leader}, others...)
	}
}

// tokenFlood posts Events with tokens that nobody has issued, to one target at a time.
type tokenFlood struct {
	event   string
	client  atomic.Pointer[account]
	tried   atomic.Int64
	refused atomic.Int64 // answered 429
}

// at turns the flood to a target, from the address of the account's clients.
func (f *tokenFlood) at(t *testing.T, g *target, a *account) {
	t.Helper()
	f.client.Store(newAccount(t, g.config(rest.AnonymousClientConfig(a.config)), a.namespace))
}

func (f *tokenFlood) try(ctx context.Context) {
	if a := f.client.Load().postAs(ctx, fmt.Sprintf("bogus-%d", f.tried.Add(1)), f.event); a.Code == http.StatusTooManyRequests {
		f.refused.Add(1)
	}
}
