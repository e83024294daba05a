package sink

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// ending is a client whose first requests end their goroutine, as runtime.Goexit
// does in a fake that fails a test.
func ending(asked *atomic.Int64, first int64) Client {
	return scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		if asked.Add(1) <= first {
			runtime.Goexit()
		}
		return nil, nil
	})
}

// Another worker takes the place of one that a client has ended, and the series goes
// on, also if whoever is told of its outcome ends the goroutine again.
func TestWorkerThatIsEndedIsReplaced(t *testing.T) {
	for name, retryFor := range map[string]time.Duration{"tries again": time.Hour, "gives up": 1} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			bubble(t, ending(&asked, 1), func(o *Options) { o.Concurrency, o.MinConcurrency, o.RetryFor = 1, 1, retryFor }, func(t *testing.T, b *bench) {
				b.record(0, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { runtime.Goexit() } })
				time.Sleep(time.Minute)
				b.record(1)
				time.Sleep(time.Minute)
				if got := b.ledger.Totals(); asked.Load() != 2+got.Outcomes[occurrence.Created]-1 || got.Pending() != 0 || got.Outcomes[occurrence.Created] == 0 {
					t.Errorf("%d requests, settled %v", asked.Load(), got.Outcomes)
				}
			})
		})
	}
}

// What a request has done that ended its goroutine is as unknown as after a lost
// answer, and it is made again no sooner.
func TestRequestThatEndsItsWorkerIsInDoubt(t *testing.T) {
	var asked atomic.Int64
	bubble(t, ending(&asked, 1000), nil, func(t *testing.T, b *bench) {
		b.record(0)
		b.Flush(t.Context())
		// As many as in TestSeriesThatIsNeverTakenIsGivenUp.
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Uncertain] != 1 || asked.Load() < 60 || asked.Load() > 140 {
			t.Errorf("%d requests, settled %v", asked.Load(), got.Outcomes)
		}
	})
}
