package sink

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/sinktest"
)

// These tests are about time, so the far end is in the process and the clock is
// a bubble's. What the apiserver answers is tested in apiserver_test.go.

// Every bubble checks that there is no second one.
func TestOneSeriesHasOneRequestInFlight(t *testing.T) {
	f := &fake{takes: time.Second, answer: fail(apierrors.NewServiceUnavailable(""))}
	bubble(t, f, func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		for range 1000 {
			b.record(0)
			time.Sleep(10 * time.Millisecond)
		}
		b.flush()
		if l := f.load(""); l.most != 1 || l.sent < 10 {
			t.Errorf("%d requests, %d at once", l.sent, l.most)
		}
	})
}

// The lock is not held meanwhile. It is the race detector that finds what is wrong.
func TestCounterIsUsedWhileARequestIsPlanned(t *testing.T) {
	target := &occurrence.Target{Event: sinktest.Event(false), Name: "web-0"} // not identified
	c, sequence := counter.New(counter.NewInstance(), target, nil), uint64(0)
	add := func() {
		for range 1000 { // two of four are awaited, and entries of their own
			sequence++
			o := occurrence.Occurrence{Event: target.Event, Weight: 1, Client: "a", Total: int64(sequence)}
			if sequence&2 != 0 {
				o.Settled = func(occurrence.Settlement) {}
			}
			e, claim := counter.NewEntry(&o, target)
			c.Add(sequence, 0, &e, claim)
		}
	}
	add()
	d, _ := c.Begin(counter.Access{Change: true})
	var planned sync.WaitGroup
	planned.Go(d.Plan)
	series, acknowledged := c.Series(), c.Acknowledge(2)
	add()
	records := c.Records()
	planned.Wait()
	r, out := c.Commit(d)
	if len(out) > 0 || r.Event.Count != 1000 || len(records) != 1502 || !acknowledged.Acknowledged || series.Identity.Digest() != c.Digest() {
		t.Errorf("%d are written, %d entries have settled, of %d; %v", r.Event.Count, len(out), len(records), acknowledged)
	}
}

// lockJournal counts how often a plan is made, and how often the sink's mutex is held meanwhile.
type lockJournal struct {
	counter.Journal
	sink          *Sink
	planned, held int
}

func (j *lockJournal) Added(*counter.Counter, counter.Addition) {}
func (j *lockJournal) Settled(*counter.Counter, []uint64)       {}
func (j *lockJournal) Keeps(uint64, uint64) bool                { return false }
func (j *lockJournal) Sent() uint64                             { return 0 }

func (j *lockJournal) Counted(occurrence.Digest, counter.EventID, counter.Contributor) uint64 {
	j.planned++
	if !j.sink.mu.TryLock() {
		j.held++
		return 0
	}
	j.sink.mu.Unlock()
	return 0
}

// Others add occurrences while a request is planned.
func TestMutexIsFreeWhileARequestIsPlanned(t *testing.T) {
	s := &Sink{}
	j := &lockJournal{sink: s}
	target := &occurrence.Target{Event: sinktest.Event(false), Name: "web-0"}
	p := newPendingSeries(counter.New(counter.NewInstance(), target, j))
	w := &worker{sink: s, series: p}
	request := func(sequence uint64) *request {
		o := occurrence.Occurrence{Event: target.Event, Weight: 1, Client: "a", Total: int64(sequence)}
		e, claim := counter.NewEntry(&o, target)
		p.counter.Add(sequence, 0, &e, claim)
		d, _ := p.counter.Begin(counter.Access{Change: true})
		return w.plan(&draft{Draft: d}).request
	}
	create := request(1)
	p.counter.Succeeded(create.Request, create.Event)
	j.planned, j.held = 0, 0
	if patch := request(2); patch.Kind != counter.Change || j.planned == 0 || j.held > 0 {
		t.Errorf("request %v is planned with %d totals, %d of them with the mutex held", patch.Kind, j.planned, j.held)
	}
}

func TestPendingSeriesAreCapped(t *testing.T) {
	bubble(t, &fake{answer: hang}, func(o *Options) { o.MaxPendingSeries = 5 }, func(t *testing.T, b *bench) {
		b.recordEach(10)
		deferred, settled := 0, 0
		for i := range 10 {
			b.recordLater(i, time.Hour, func(o *occurrence.Occurrence) {
				o.Deferred = func() { deferred++ }
				o.Settled = func(occurrence.Settlement) { settled++ }
			})
		}
		if deferred != 5 || settled != 5 {
			t.Errorf("%d deferred, %d settled", deferred, settled)
		}
		b.wantEnds(ends{occurrence.PendingFull: 10})
		if p := b.Pending(); p != (Pending{Series: 5, Occurrences: 10}) {
			t.Errorf("pending %+v", p)
		}
	})
}

func TestPendingBytesAreCapped(t *testing.T) {
	bubble(t, &fake{answer: hang}, func(o *Options) { o.MaxPendingBytes = 1 << 20 }, func(t *testing.T, b *bench) {
		for range 10_000 {
			b.record(0, awaited)
		}
		pending := b.Pending().Occurrences
		if pending < 500 || pending > 1024 {
			t.Errorf("%d pending", pending)
		}
		b.wantEnds(ends{occurrence.PendingFull: 10_000 - pending})
	})
}

// An update takes two requests.
func TestWriteRateIsBounded(t *testing.T) {
	for requests, f := range map[int]*fake{1: {}, 2: withRights("create get update")} {
		bubble(t, f, func(o *Options) { o.QPS, o.Burst = 100, 50 }, func(t *testing.T, b *bench) {
			writeThrice(b)
			b.recordEach(1050 / requests)
			b.flush()
			time.Sleep(time.Second)
			began := time.Now()
			b.recordEach(1050 / requests)
			b.flush()
			if took := time.Since(began).Round(time.Second); took != 10*time.Second {
				t.Errorf("1,000 requests above the burst took %v, with %d for each write", took, requests)
			}
		})
	}
}

func TestNamespaceMakesNoOthersSeriesForgotten(t *testing.T) {
	const size, own = 50, 20
	f := &fake{}
	bubble(t, f, func(o *Options) { o.MaxIdleSeries = size }, func(t *testing.T, b *bench) {
		b.recordEach(own, inNamespace("quiet"))
		synctest.Wait()
		b.recordEach(10 * size)
		b.flush()
		b.mu.Lock()
		all := b.idle.Len()
		b.mu.Unlock()
		if all != size {
			t.Errorf("%d series are remembered", all)
		}
		before := f.sent()
		b.recordEach(own, inNamespace("quiet"))
		b.flush()
		if n := f.sent() - before; n != own {
			t.Errorf("%d requests for %d series of the quiet namespace", n, own)
		}
	})
}

// Sequences cannot be guessed from those that are stored.
func TestSequencesHaveRandomGaps(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		const n = 100
		small := 0
		for range n {
			before := b.sequence
			b.recordLater(0, time.Hour)
			if gap := b.sequence - before; gap < 1 || gap > maxGap {
				t.Errorf("a gap of %d", gap)
			} else if gap < maxGap/1000 {
				small++
			}
		}
		one, other := newGaps(), newGaps()
		if small > n/10 || one.Uint64() == other.Uint64() {
			t.Errorf("%d of %d gaps are small, or those of all sinks are the same", small, n)
		}
	})
}

// endGoroutine ends the goroutine of the first requests, as a fake does that fails a test.
func endGoroutine(first int) answer {
	return func(_ context.Context, c *call) error {
		if c.number <= first {
			runtime.Goexit()
		}
		return nil
	}
}

// Another worker replaces it and continues the series, also if a callback ends the
// goroutine as well.
func TestWorkerThatAClientEndsIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		retryFor time.Duration
		requests int
		want     ends
	}{
		"retried": {time.Hour, 3, ends{written: 3}},
		"dropped": {1, 2, ends{written: 2, occurrence.Uncertain: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{takes: time.Second, answer: endGoroutine(1)}
			one := func(o *Options) { o.Concurrency, o.MinConcurrency, o.RetryFor = 1, 1, test.retryFor }
			bubble(t, f, one, func(t *testing.T, b *bench) {
				b.record(0, onSettled(func(occurrence.Settlement) { runtime.Goexit() }))
				time.Sleep(time.Minute)
				settled := 0
				for range 2 { // both callbacks are called
					b.recordLater(1, time.Second, onSettled(func(occurrence.Settlement) { settled++; runtime.Goexit() }))
				}
				pass(time.Minute)
				b.wantEnds(test.want)
				if n := f.sent(); n != test.requests || settled != 2 {
					t.Errorf("%d requests, want %d; %d have settled", n, test.requests, settled)
				}
			})
		})
	}
}

// A request that ended its goroutine may have taken effect, as after a lost answer. It is
// sent again no sooner, and Close does not wait for it.
func TestRequestThatEndsItsWorkerIsInDoubt(t *testing.T) {
	f := &fake{answer: endGoroutine(1000)}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0)
		b.flush()
		b.wantEnds(ends{occurrence.Uncertain: 1})
		if n := f.sent(); n < 60 || n > 140 { // as in TestSeriesThatIsNeverTakenIsGivenUp
			t.Errorf("%d requests", n)
		}
		b.record(1)
	})
}

// Each row spoils one field of valid options; the error is about that field alone.
func TestOptionsAreValidated(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"Concurrency must be greater than 0, got 0":                      func(o *Options) { o.Concurrency = 0 },
		"Concurrency must be at most 10000, got 10001":                   func(o *Options) { o.Concurrency = MaxConcurrency + 1 },
		"MinConcurrency must be greater than 0, got 0":                   func(o *Options) { o.MinConcurrency = 0 },
		"SlowAnswer must be greater than 0, got 0s":                      func(o *Options) { o.SlowAnswer = 0 },
		"NamespaceRefusedFor must not be negative, got -1ns":             func(o *Options) { o.NamespaceRefusedFor = -1 },
		"QPS must be greater than 0, got 0":                              func(o *Options) { o.QPS = 0 },
		"QPS must be greater than 0, got NaN":                            func(o *Options) { o.QPS = math.NaN() },
		"Burst must be greater than 0, got -1":                           func(o *Options) { o.Burst = -1 },
		"RequestTimeout must be greater than 0, got 0s":                  func(o *Options) { o.RequestTimeout = 0 },
		"RetryBaseDelay must be greater than 0, got 0s":                  func(o *Options) { o.RetryBaseDelay = 0 },
		"RetryMaxDelay must be at least RetryBaseDelay (50ms), got 49ms": func(o *Options) { o.RetryMaxDelay = 49e6 },
		"RetryFor must be greater than 0, got 0s":                        func(o *Options) { o.RetryFor = 0 },
		"ForbiddenFor must not be negative, got -1ns":                    func(o *Options) { o.ForbiddenFor = -1 },
		"MaxPendingSeries must be greater than 0, got 0":                 func(o *Options) { o.MaxPendingSeries = 0 },
		"MaxPendingBytes must be greater than 0, got 0":                  func(o *Options) { o.MaxPendingBytes = 0 },
		"MaxIdleSeries must be greater than 0, got 0":                    func(o *Options) { o.MaxIdleSeries = 0 },
		"Acknowledge must be one of the constants, got 3":                func(o *Options) { o.Acknowledge = 3 },
		"Acknowledge must not be AcknowledgeReplicated without Holdings, got 1": func(o *Options) {
			o.Acknowledge = AcknowledgeReplicated
		},
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New(t.Context(), nil, ledger.New(), o); err == nil || err.Error() != "sink options: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	extreme := DefaultOptions()
	extreme.Concurrency, extreme.NamespaceRefusedFor, extreme.ForbiddenFor = MaxConcurrency, 0, 0
	for name, o := range map[string]Options{"defaults": DefaultOptions(), "extremes": extreme} {
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
