package sink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// No request would end by itself within a minute. client-go's pings would see the
// death after 45 s.
func TestDeadConnectionIsNoticedInSecondsAndCostsNothing(t *testing.T) {
	t.Parallel()
	for name, up := range map[string]bool{"packets vanish both ways": true, "answers vanish": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const bound = 15 * time.Second
			namespace := testenv.Shared(t).Namespace(t)
			var network sinktest.Network
			o := unlimited()
			o.RequestTimeout = time.Minute
			b := newBench(t, namespace, connect(t, network.Over(testenv.Shared(t).Config())), o)
			load := startLoad(t, b)

			load.waitFor(t, 100, time.Time{})
			before := network.Dials.Load()
			network.Lose(int(before), up)
			died := time.Now()
			load.waitFor(t, 1, died)
			took := time.Since(died)
			t.Logf("the first write after the death was committed after %v", took)
			if took > bound {
				t.Errorf("the first write after the death was committed after %v, want at most %v", took, bound)
			}
			load.waitFor(t, 100, died)

			series := load.end()
			b.drain()
			b.wantEnds(ends{written: int64(series)})
			wantStored(t, namespace, series, int64(series))
			if lost, dials := network.Lost.Load(), network.Dials.Load()-before; lost == 0 || dials == 0 {
				t.Errorf("%d bytes were lost and %d new connections made: no connection has died", lost, dials)
			}
		})
	}
}

// steadyLoad records 100 occurrences a second, each of a series of its own.
type steadyLoad struct {
	stop     func()
	recorder sync.WaitGroup
	series   int

	mu      sync.Mutex
	settled []time.Time // when what has settled was recorded
}

func startLoad(t *testing.T, b *bench) *steadyLoad {
	ctx, stop := context.WithCancel(t.Context())
	l := &steadyLoad{stop: stop}
	l.recorder.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; l.series++ {
			recorded := time.Now()
			b.record(l.series, onSettled(func(occurrence.Settlement) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.settled = append(l.settled, recorded)
			}))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return l
}

// waitFor waits until n occurrences have settled that were recorded after since.
func (l *steadyLoad) waitFor(t *testing.T, n int, since time.Time) {
	t.Helper()
	await.Until(t, fmt.Sprint(n, " occurrences to settle"), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		after := 0
		for _, recorded := range l.settled {
			if recorded.After(since) {
				after++
			}
		}
		return after >= n
	})
}

// end stops recording and returns how many series there are.
func (l *steadyLoad) end() int {
	l.stop()
	l.recorder.Wait()
	return l.series
}

// If one of the connections cannot be made, because the way to one of several
// apiservers drops all packets, requests use the other. A request whose timeout ended during
// the dial is retried, and nothing else waits for that.
func TestConnectionThatCannotBeMadeHoldsUpNothing(t *testing.T) {
	t.Parallel()
	network := &sinktest.Network{Fail: func(dial int64) error {
		if dial == 1 {
			return nil
		}
		<-t.Context().Done()
		return t.Context().Err()
	}}
	o := unlimited()
	o.Concurrency, o.MinConcurrency = 4, 4
	o.RequestTimeout = 2 * time.Second // less than a dial may take
	b := newBench(t, testenv.Shared(t).Namespace(t), connect(t, network.Over(testenv.Shared(t).Config())), o)
	const series = 500
	b.recordEach(series)
	b.drain()
	b.wantEnds(ends{written: series})
	if n := network.Dials.Load(); n < 2 {
		t.Errorf("%d dials", n)
	}
	failed := func(c apiclient.Class) float64 {
		return testutil.ToFloat64(b.metrics.failed.WithLabelValues(string(c)))
	}
	if n := failed(apiclient.ClassUnreachable); n != 0 {
		t.Errorf("the apiserver counted as unreachable %v times", n)
	}
	if failed(apiclient.ClassRetry) == 0 {
		t.Error("no request timed out during the dial")
	}
}

// A connection that is dead, and not known to be, gets its part of the requests. The rest
// use the other one.
func TestDeadConnectionTakesNoMoreThanItsPart(t *testing.T) {
	t.Parallel()
	var network sinktest.Network
	client, namespace := connect(t, network.Over(testenv.Shared(t).Config())), testenv.Shared(t).Namespace(t)
	for range apiclient.Connections { // one over each
		if _, err := client.Create(t.Context(), occurrence.CoreV1, sinktest.Unnamed(namespace, false)); err != nil {
			t.Fatal(err)
		}
	}
	o := unlimited()
	const inFlight, series = 8, 50 // several times what is in flight
	o.Concurrency, o.MinConcurrency = inFlight, inFlight
	b := newBench(t, namespace, client, o)
	network.Lose(1, true)
	b.recordEach(series)
	await.Until(t, "the writes over the other connection", func() bool {
		return b.ledger.Totals().Written() >= series-inFlight
	})
	if n := network.Dials.Load(); n != apiclient.Connections {
		t.Errorf("it was written when the connection was known to be dead, after %d dials", n)
	}
}
