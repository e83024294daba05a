package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
)

// weighing returns the n-th of several occurrences, each of which is a series, and has the weight n.
func weighing(n int64) *occurrence.Occurrence {
	o := reported("ns", "", fmt.Sprint("message ", n), 1)
	o.Event.InvolvedObject.Name, o.Weight = fmt.Sprint("web-", n), n
	return o
}

// A shutdown reports the weight of all that is left, wherever it was when the context ended.
func TestShutdownReportsTheWeightOfWhatIsLeft(t *testing.T) {
	const (
		count, sum = 10, 55
		limit      = 100 * time.Millisecond
		inTime     = limit + grace.Period/2
	)
	for name, test := range map[string]struct {
		clock  time.Duration // how long it takes
		stuck  int64         // the callback of this occurrence does not return
		series int           // pending in the sink
	}{
		"the clock does not return":                          {clock: time.Hour},
		"the clock returns in time":                          {clock: inTime, series: 1},
		"the clock returns in time, and a callback does not": {clock: inTime, stuck: 5, series: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel() // ends what has not returned
				wait := func(d time.Duration) {
					select {
					case <-time.After(d):
					case <-ctx.Done():
					}
				}
				o := DefaultOptions()
				o.Clock = waitingClock{func() { wait(test.clock) }}
				p := startPipeline(t, o, newMemoryServer(0, faults{busy: 1}))
				var settled [count + 1]atomic.Int64 // calls of its callback
				for n := int64(1); n <= count; n++ {
					w := weighing(n)
					w.Settled = func(occurrence.Settlement) {
						settled[n].Add(1)
						if n == test.stuck {
							wait(time.Hour)
						}
					}
					p.Record(w)
				}
				var left *UndeliveredError
				err := wantShutdownWithin(t, p, limit, limit+shutdownLimit)
				if !errors.As(err, &left) || left.Occurrences != sum || left.Series != test.series {
					t.Errorf("the shutdown reports %v, want %d occurrences of %d series", err, sum, test.series)
				}
				if totals := p.Totals(); totals.Dropped[occurrence.Shutdown]+totals.Outcomes[occurrence.Uncertain] != sum {
					t.Errorf("ledger %+v", totals)
				}
				for n := int64(1); n <= count; n++ {
					if calls := settled[n].Load(); calls != 1 {
						t.Errorf("the callback of occurrence %d was called %d times", n, calls)
					}
				}
				if p.writer.correlating.watchdog.Stop() {
					t.Error("a timer is left")
				}
			})
		})
	}
}

// If several shutdowns run at once, one that ends earlier reports what is pending then, and stops nothing.
func TestShorterShutdownReportsWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inSink, sum = 3, 55
		release := make(chan struct{})
		decided := 0
		o := DefaultOptions()
		o.Clock = waitingClock{func() {
			if decided++; decided > inSink {
				<-release
			}
		}}
		m := &memorySink{before: refuseFor(10 * time.Second)}
		client, err := newCustomSink(recordCalls{m}, &traits{}, o.Sink)
		if err != nil {
			t.Fatal(err)
		}
		p := startPipeline(t, o, client)
		for n := int64(1); n <= 10; n++ {
			p.Record(weighing(n))
		}
		longer := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			longer <- p.Shutdown(ctx)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var left *UndeliveredError
		err = p.Shutdown(ctx)
		if !errors.As(err, &left) || left.Occurrences != sum || left.Series != inSink || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the shorter shutdown reports %v, want %d occurrences of %d series", err, sum, inSink)
		}
		close(release)
		if err := <-longer; err != nil {
			t.Errorf("the longer shutdown reports %v", err)
		}
		if totals := settled(t, p); totals.Written() != sum {
			t.Errorf("ledger %+v", totals)
		}
		m.want(t, 10, sum)
	})
}

// What the goroutine has dropped is reported too if it ends while it is being abandoned.
func TestShutdownReportsWhatIsDroppedAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &correlating{done: make(chan struct{}), dropped: 7}
		c.watchdog = time.AfterFunc(time.Hour, c.watch)
		time.AfterFunc(2*grace.Period, func() { close(c.done) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if dropped := c.end(ctx); dropped != 7 {
			t.Errorf("%d are reported, want 7", dropped)
		}
	})
}
