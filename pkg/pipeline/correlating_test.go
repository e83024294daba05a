package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
)

// shutdownLimit is the time that a shutdown may take after the end of its context.
const shutdownLimit = time.Second

// waitingClock is a clock whose Now does not return.
type waitingClock struct{ wait func() }

func (c waitingClock) Now() time.Time                { c.wait(); return time.Now() }
func (c waitingClock) Since(time.Time) time.Duration { return 0 }

// calledOrigin is an Origin that calls a function before it builds its Event.
type calledOrigin struct {
	event  *corev1.Event
	before func()
}

func (o calledOrigin) Type() string                        { return o.event.Type }
func (o calledOrigin) Event(time.Time) *corev1.Event       { o.before(); return o.event }
func (o calledOrigin) Shared(time.Time) *occurrence.Shared { return nil } // nobody watches

// Whatever user code does not return, the shutdown ends. The ledger is exact then, and after
// the code has returned.
func TestShutdownIsBoundedThoughNothingReturns(t *testing.T) {
	type calls struct {
		settled  func(occurrence.Settlement)
		deferred func()
		built    func()
	}
	for name, hang := range map[string]func(o *Options, c *calls, wait func()){
		"subject key": func(o *Options, _ *calls, wait func()) {
			o.Correlator.SubjectKey = func(*corev1.Event) string { wait(); return "" }
		},
		"group key": func(o *Options, _ *calls, wait func()) {
			o.Correlator.GroupKey = func(*corev1.Event) (string, string) { wait(); return "", "" }
		},
		"message": func(o *Options, _ *calls, wait func()) {
			o.Correlator.MaxMessages = 1
			o.Correlator.Message = func(*corev1.Event) string { wait(); return "" }
		},
		"clock": func(o *Options, _ *calls, wait func()) { o.Clock = waitingClock{wait} },
		"slow key": func(o *Options, _ *calls, _ func()) {
			o.Correlator.SubjectKey = func(*corev1.Event) string { time.Sleep(100 * time.Millisecond); return "" }
		},
		"callback of an outcome": func(_ *Options, c *calls, wait func()) {
			c.settled = func(occurrence.Settlement) { wait() }
		},
		"callback of a drop": func(o *Options, c *calls, wait func()) {
			o.Sink.MaxPendingSeries = 1
			c.settled = func(occurrence.Settlement) { wait() }
		},
		"callback of a deferral": func(o *Options, c *calls, wait func()) {
			o.Correlator.Burst = 1
			c.deferred = wait
		},
		"Origin": func(_ *Options, c *calls, wait func()) { c.built = wait },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				o, c := DefaultOptions(), calls{}
				hang(&o, &c, func() { <-never })
				p := startPipeline(t, o, newMemoryServer(0, faults{}))
				for i := range 100 {
					r := reported("ns", fmt.Sprint("client-", i), fmt.Sprint("message ", i), 1)
					r.Settled, r.Deferred = c.settled, c.deferred
					if c.built != nil {
						r.Event, r.Origin = nil, calledOrigin{r.Event, c.built}
					}
					p.Record(r)
				}
				time.Sleep(time.Second)
				wantShutdownWithin(t, p, time.Second, time.Second+shutdownLimit)
				before := p.Totals()
				if before.Recorded != 100 {
					t.Errorf("ledger %+v", before)
				}
				close(never)
				synctest.Wait()
				wantEqual(t, "ledger", before, p.Totals())
			})
		})
	}
}

// wantShutdownWithin checks how long a shutdown takes whose context ends after limit, and
// that it settles everything. It returns the error.
func wantShutdownWithin(t *testing.T, b drainer, limit, most time.Duration) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	shut := make(chan error, 1)
	go func() { shut <- b.ShutdownWithContext(ctx) }()
	select {
	case err = <-shut:
	case <-time.After(2 * most):
		t.Fatalf("the shutdown has not ended after %v", 2*most)
	}
	if took := time.Since(began); took > most {
		t.Errorf("the shutdown took %v, of %v", took, limit)
	}
	if err != nil && !errors.As(err, new(*UndeliveredError)) {
		t.Error(err)
	}
	settled(t, b)
	return err
}

func TestKeyFunctionThatDoesNotReturnIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		var lines atomic.Int64
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "key function") {
				lines.Add(1)
			}
		}, funcr.Options{})
		registry := prometheus.NewPedanticRegistry()
		o := DefaultOptions()
		o.Registerer = registry
		o.Correlator.SubjectKey = func(*corev1.Event) string { <-never; return "" }
		b, r := recordTo(&memorySink{}, WithOptions(o), WithContext(klog.NewContext(t.Context(), logger)))
		time.Sleep(time.Hour)
		r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		time.Sleep(time.Hour)
		wantSeries(t, registry, "eventd_correlator_stalled", map[string]float64{"broadcaster=record,sink=1": 1})
		close(never)
		time.Sleep(time.Minute)
		wantSeries(t, registry, "eventd_correlator_stalled", map[string]float64{"broadcaster=record,sink=1": 0})
		if n := lines.Load(); n != 1 {
			t.Errorf("%d lines are logged", n)
		}
		drain(t, b)
	})
}

// A key function that is slow for each Event does return.
func TestSlowKeyFunctionIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := funcr.New(func(_, args string) { t.Error(args) }, funcr.Options{})
		slow := with(func(o *Options) {
			o.Correlator.SubjectKey = func(*corev1.Event) string { time.Sleep(6 * time.Second); return "" }
		})
		b, r := recordTo(&memorySink{}, slow, WithContext(klog.NewContext(t.Context(), logger)))
		for range 8 {
			r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
		}
		time.Sleep(time.Minute)
		drain(t, b)
	})
}

// The watchdog ends with what it watches, also if it fires in the moment in which that ends.
func TestWatchdogEndsWithItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Int64
		c := &correlating{done: make(chan struct{}), watchdog: time.AfterFunc(stalledAfter, func() { fired.Add(1) })}
		time.Sleep(stalledAfter + 1)
		c.watch()
		time.Sleep(stalledAfter + 1)
		c.watch()
		wantEqual(t, "fired before the end", fired.Load(), int64(2))
		close(c.done)
		c.end(t.Context())
		time.Sleep(2 * stalledAfter)
		c.watch()
		time.Sleep(2 * stalledAfter)
		wantEqual(t, "fired at the end", fired.Load(), int64(2))
	})
}

// A key function that ends its goroutine affects only its Event.
func TestKeyFunctionMayEndItsGoroutine(t *testing.T) {
	o := DefaultOptions()
	o.Correlator.SubjectKey = func(e *corev1.Event) string {
		if e.Reason == "Bad" {
			runtime.Goexit()
		}
		return e.InvolvedObject.Name
	}
	b, r := recordTo(&memorySink{}, WithOptions(o))
	for i := range 10 {
		r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", []string{"Good", "Bad"}[i%2], "")
	}
	if totals := drain(t, b); totals.Written() != 5 || totals.Dropped[occurrence.Malformed] != 5 {
		t.Errorf("ledger %+v", totals)
	}
}

// So does an Origin that does.
func TestOriginMayEndItsGoroutine(t *testing.T) {
	p := startPipeline(t, DefaultOptions(), newMemoryServer(0, faults{}))
	for i := range 10 {
		o := reported("ns", fmt.Sprint("client-", i), "message", 1)
		if i%2 == 1 {
			o.Event, o.Origin = nil, calledOrigin{o.Event, runtime.Goexit}
		}
		p.Record(o)
	}
	if totals := drain(t, p); totals.Written() != 5 || totals.Dropped[occurrence.Malformed] != 5 {
		t.Errorf("ledger %+v", totals)
	}
}
