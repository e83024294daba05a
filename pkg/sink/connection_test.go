package sink

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
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
			network, config := sinktest.Forward(t, testenv.Shared(t).Config())
			o := unlimited()
			o.RequestTimeout = time.Minute
			b := newBench(t, namespace, connect(t, config), o)
			load := startLoad(t, b)

			load.waitFor(t, 100, time.Time{}, time.Minute)
			before := network.Accepted.Load()
			network.Lose(up)
			died := time.Now()
			load.waitFor(t, 1, died, time.Minute)
			took := time.Since(died)
			t.Logf("the first write after the death was committed after %v", took)
			if took > bound {
				t.Errorf("the first write after the death was committed after %v, want at most %v", took, bound)
			}
			load.waitFor(t, 100, died, time.Minute)

			series := load.end()
			totals := b.close()
			if totals.Written() != totals.Recorded {
				t.Errorf("recorded %d, settled as %v", totals.Recorded, totals.Outcomes)
			}
			wantStored(t, namespace, series, int64(series))
			if network.Lost.Load() == 0 || network.Accepted.Load() == before {
				t.Errorf("%d bytes were lost and %d new connections made: no connection has died", network.Lost.Load(), network.Accepted.Load()-before)
			}
		})
	}
}

// load is what records 100 occurrences a second, each of a series of its own.
type load struct {
	settled chan time.Time // when what is settled was recorded
	quit    chan struct{}
	stop    func() // closes quit
	series  chan int
}

func startLoad(t *testing.T, b *bench) *load {
	l := &load{settled: make(chan time.Time, 100_000), quit: make(chan struct{}), series: make(chan int, 1)}
	l.stop = sync.OnceFunc(func() { close(l.quit) })
	t.Cleanup(l.stop)
	settled := func(o *occurrence.Occurrence) {
		recorded := o.Recorded
		o.Settled = func(occurrence.Settlement) { l.settled <- recorded }
	}
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			b.record(i, settled)
			select {
			case <-tick.C:
			case <-l.quit:
				l.series <- i + 1
				return
			}
		}
	}()
	return l
}

// waitFor waits until n occurrences are settled that were recorded after since.
func (l *load) waitFor(t *testing.T, n int, since time.Time, timeout time.Duration) {
	t.Helper()
	deadline := time.After(timeout)
	for n > 0 {
		select {
		case recorded := <-l.settled:
			if recorded.After(since) {
				n--
			}
		case <-deadline:
			t.Fatalf("%d occurrences are not settled after %v", n, timeout)
		}
	}
}

// end stops recording and returns how many series there are.
func (l *load) end() int {
	l.stop()
	return <-l.series
}

// Where one of the connections cannot be made, because the way to one of several
// apiservers swallows everything, requests go over the other. One that was to find
// out, and whose time ended over it, comes again, and nothing pauses for that.
func TestConnectionThatCannotBeMadeHoldsUpNothing(t *testing.T) {
	t.Parallel()
	config, dials := sinktest.DialOnce(testenv.Shared(t).Config(), func() error {
		<-t.Context().Done()
		return t.Context().Err()
	})
	o := unlimited()
	o.Concurrency, o.MinConcurrency = 4, 4
	o.RequestTimeout = 2 * time.Second // and not as long as a dial may take
	b := newBench(t, testenv.Shared(t).Namespace(t), connect(t, config), o)
	const series = 500
	for i := range series {
		b.record(i)
	}
	if totals := b.close(); totals.Written() != series || dials.Load() < 2 {
		t.Errorf("%d of %d are written, after %d dials", totals.Written(), series, dials.Load())
	}
	if n := testutil.ToFloat64(b.metrics.failed.WithLabelValues(string(apiclient.ClassUnreachable))); n != 0 {
		t.Errorf("the apiserver was found to be unreachable %v times", n)
	}
	if n := testutil.ToFloat64(b.metrics.failed.WithLabelValues(string(apiclient.ClassRetry))); n == 0 {
		t.Error("the time of no request has ended over a connection that was not made")
	}
}

// deaf is a connection whose other end hears nothing any more.
type deaf struct {
	net.Conn
	from *atomic.Bool
}

func (d deaf) Write(p []byte) (int, error) {
	if d.from.Load() {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// A connection that is dead, and not known to be, has its part of the requests. The
// other one goes on with the rest.
func TestDeadConnectionTakesNoMoreThanItsPart(t *testing.T) {
	t.Parallel()
	config := testenv.Shared(t).Config()
	var dials atomic.Int64
	var dead atomic.Bool
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && dials.Add(1) == 1 {
			conn = deaf{conn, &dead}
		}
		return conn, err
	}
	client, namespace := connect(t, config), testenv.Shared(t).Namespace(t)
	event := sinktest.Event(false)
	event.Namespace, event.InvolvedObject.Namespace, event.GenerateName = namespace, namespace, "e-"
	for range apiclient.Connections { // one over each
		if _, err := client.Create(t.Context(), occurrence.CoreV1, event); err != nil {
			t.Fatal(err)
		}
	}
	o := unlimited()
	const inFlight = 8
	o.Concurrency, o.MinConcurrency = inFlight, inFlight
	b := newBench(t, namespace, client, o)
	dead.Store(true)
	const series = 50 // several times what is in flight
	for i := range series {
		b.record(i)
	}
	sinktest.Eventually(t, func() error {
		if written := b.ledger.Totals().Written(); written < series-inFlight {
			return fmt.Errorf("%d of %d are written", written, series)
		}
		return nil
	})
	if n := dials.Load(); n != apiclient.Connections {
		t.Errorf("it was written when the connection was known to be dead, after %d dials", n)
	}
}

func connect(t *testing.T, config *rest.Config) Client {
	t.Helper()
	client, err := NewClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
