package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/eventd/eventd/pkg/batch"
)

// Batches as large as they may be, of the smallest Events, of Events that differ, and of nothing,
// delay no single report of another tenant.
func TestBatchesOfOneUserAreNoticedByNoOther(t *testing.T) {
	g := eventdTarget(t)
	attacker := g.account(t, "attacker", "create", "patch")
	url := attacker.events() + "?" + batch.Query
	list := func(items string) string {
		return `{"apiVersion":"v1","kind":"EventList","items":[` + strings.TrimSuffix(items, ",") + `]}`
	}
	smallest := list(strings.Repeat("{},", batch.MaxItems))
	nothing := list(strings.Repeat("0,", maxBody/2-50))
	var posted, tooLarge atomic.Int64
	post := func(ctx context.Context, body string) {
		a := attacker.do(ctx, http.MethodPost, url, body, "Content-Type", "application/json")
		if strings.Contains(a.Body, fmt.Sprint("limit is ", maxBody)) {
			tooLarge.Add(1)
		}
	}
	siege{allowed: limits{peak: 256, p99: usual.p99}, attack: func(ctx context.Context) {
		crowd(ctx, 50, 100, func() {
			n := posted.Add(1)
			switch n % 4 {
			case 0:
				post(ctx, smallest)
			case 1:
				post(ctx, nothing)
			default:
				var items strings.Builder
				for i := 0; items.Len() < maxBody-1<<10; i++ {
					items.WriteString(attacker.event(fmt.Sprintf("batched-%d-%d", n, i), fmt.Sprint("pod-", i), "Warning", 1) + ",")
				}
				post(ctx, list(items.String()))
			}
		})
	}}.run(t, g)
	if n := tooLarge.Load(); n > 0 {
		t.Errorf("%d batches are larger than a body may be", n)
	}
	if n := g.metrics(t).Sum("eventd_intake_batched_events_total"); n < batch.MaxItems {
		t.Errorf("%v Events of batches were handled: the attack had no effect", n)
	}
}
