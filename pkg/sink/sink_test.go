package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// These tests are about time, so the far end is in the process and the clock is
// a bubble's. What the apiserver answers is tested in apiserver_test.go.

// scripted answers every request by a function.
type scripted func(ctx context.Context, v apiclient.Verb) (*corev1.Event, error)

func (s scripted) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	answer, err := s(ctx, apiclient.VerbCreate)
	if answer == nil && err == nil {
		answer = event.DeepCopy()
		answer.UID, answer.ResourceVersion = "uid", "1"
	}
	return answer, err
}

func (s scripted) Patch(ctx context.Context, _ occurrence.API, _, _ string, _ []byte) (*corev1.Event, error) {
	return s(ctx, apiclient.VerbPatch)
}

func hang(ctx context.Context, _ apiclient.Verb) (*corev1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func bubble(t *testing.T, c Client, change func(*Options), test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		o := unlimited()
		if change != nil {
			change(&o)
		}
		b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
		var err error
		if b.Sink, err = New(t.Context(), c, b.ledger, o); err != nil {
			t.Fatal(err)
		}
		test(t, b)
		b.Close(t.Context())
		if got := b.ledger.Totals(); got.Pending() != 0 || b.total != (totals{}) {
			t.Errorf("recorded %d, settled %v, held %+v", got.Recorded, got.Outcomes, b.total)
		}
		if f := b.fair; f.series != 0 || len(f.flows)+len(f.namespaces.byName)+len(f.tenants.byName)+len(f.namespaces.ranking)+len(f.tenants.ranking) != 0 {
			t.Errorf("%+v is accounted for, though nothing is pending", f)
		}
	})
}

func TestHangingRequestDelaysNoOtherSeries(t *testing.T) {
	var mu sync.Mutex
	hung := false
	c := scripted(func(ctx context.Context, v apiclient.Verb) (*corev1.Event, error) {
		mu.Lock()
		first := !hung
		hung = true
		mu.Unlock()
		if first {
			return hang(ctx, v)
		}
		return nil, nil
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		start := time.Now()
		for i := range 100 {
			b.record(1 + i)
		}
		synctest.Wait()
		if p := b.Pending(); p.Series != 1 || time.Since(start) != 0 {
			t.Errorf("%d series pending after %v", p.Series, time.Since(start))
		}
		if left := b.Flush(t.Context()); left.Series != 0 {
			t.Errorf("left %+v", left)
		}
		if took := time.Since(start); took > DefaultOptions().RequestTimeout+time.Second {
			t.Errorf("the hanging series took %v", took)
		}
	})
}

func TestOneSeriesHasOneRequestInFlight(t *testing.T) {
	var mu sync.Mutex
	inFlight, most := 0, 0
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		inFlight--
		mu.Unlock()
		return nil, apierrors.NewServiceUnavailable("")
	})
	bubble(t, c, func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		for range 1000 {
			b.record(0)
			time.Sleep(10 * time.Millisecond)
		}
		b.Flush(t.Context())
		if most != 1 {
			t.Errorf("%d requests in flight at once", most)
		}
	})
}

func TestSeriesThatIsNeverTakenIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		answer  error
		outcome occurrence.Outcome
	}{
		"throttled": {apierrors.NewTooManyRequestsError("later"), occurrence.Dropped},
		"lost":      {apierrors.NewInternalError(context.DeadlineExceeded), occurrence.Uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { asked++; return nil, test.answer })
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				start := time.Now()
				b.record(0)
				b.Flush(t.Context())
				took := time.Since(start)
				if o := b.options; took < o.RetryFor || took > o.RetryFor+o.RetryMaxDelay {
					t.Errorf("given up after %v", took)
				}
				// Doubling from 50 ms to 10 s takes 8 attempts, and then one
				// follows every 5 to 10 s.
				if asked < 60 || asked > 140 {
					t.Errorf("asked %d times", asked)
				}
				if got := b.ledger.Totals().Outcomes[test.outcome]; got != 1 {
					t.Errorf("settled as %v", b.ledger.Totals())
				}
			})
		})
	}
}

// An apiserver that contradicts itself is asked no more often than one that
// does not answer, and given up as well.
func TestContradictingAnswersAreRetriedAndGivenUp(t *testing.T) {
	asked := 0
	c := scripted(func(_ context.Context, v apiclient.Verb) (*corev1.Event, error) {
		asked++
		if v == apiclient.VerbCreate {
			return nil, apierrors.NewAlreadyExists(sinktest.EventsResource, "e")
		}
		return nil, apierrors.NewNotFound(sinktest.EventsResource, "e")
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		start := time.Now()
		b.record(0)
		b.Flush(t.Context())
		if took := time.Since(start); took < b.options.RetryFor || took > b.options.RetryFor+b.options.RetryMaxDelay {
			t.Errorf("given up after %v", took)
		}
		if asked > 140*maxSteps {
			t.Errorf("asked %d times", asked)
		}
		if got := b.ledger.Totals(); got.Dropped[occurrence.RetriesExhausted] != 1 {
			t.Errorf("settled as %v", got)
		}
	})
}

// overtaken finds its Event written by others whenever it wants to write. They count
// what a client has reported with the last of some reads.
type overtaken struct {
	t              *testing.T
	reads, patches int
	last           int
	stored         *corev1.Event // as the sink would have written it
}

func (o *overtaken) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	o.stored = event.DeepCopy()
	o.stored.UID = "uid"
	return nil, apierrors.NewAlreadyExists(sinktest.EventsResource, event.Name)
}

func (o *overtaken) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	if string(patch) != "{}" {
		o.patches++
		return nil, apierrors.NewConflict(sinktest.EventsResource, name, errors.New("it has been modified"))
	}
	o.reads++
	// The annotation as another sink would have left it, which does not list this one.
	var kept []string
	for _, part := range strings.Split(o.stored.Annotations[counter.Annotation], ";") {
		if part == "v1" || strings.HasPrefix(part, "n=") && o.reads >= o.last {
			kept = append(kept, part)
		}
	}
	found := o.stored.DeepCopy()
	found.ResourceVersion, found.Annotations[counter.Annotation] = fmt.Sprint(o.reads), strings.Join(kept, ";")
	return found, nil
}

// Whatever comes out with the last request of a turn: it is not lost.
func TestWhatOthersHaveCountedMeanwhileIsSettled(t *testing.T) {
	for last := 1; last <= maxSteps; last++ {
		c := &overtaken{t: t, last: last}
		bubble(t, c, nil, func(t *testing.T, b *bench) {
			b.record(0, func(o *occurrence.Occurrence) { o.Client, o.Total = "client", 1 })
			b.Flush(t.Context())
			if n := b.ledger.Totals().Outcomes[occurrence.Replayed]; n != 1 || c.reads != last || c.patches != last-1 {
				t.Errorf("%d replayed, after %d reads and %d patches, want 1, %d and %d", n, c.reads, c.patches, last, last-1)
			}
		})
	}
}

func TestCreateThatIsNotFoundIsRefused(t *testing.T) {
	asked := 0
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		asked++
		return nil, apierrors.NewGenericServerResponse(404, "post", sinktest.EventsResource, "", "404 page not found", 0, true)
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Dropped[occurrence.Refused] != 1 || asked != 1 {
			t.Errorf("asked %d times, settled as %v", asked, got)
		}
	})
}

func TestYoungOccurrencesOutliveTheOldOfTheirSeries(t *testing.T) {
	var taking atomic.Bool
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		if !taking.Load() {
			return nil, apierrors.NewTooManyRequestsError("later")
		}
		return nil, nil
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		time.Sleep(b.options.RetryFor - time.Minute)
		b.record(0)
		time.Sleep(2 * time.Minute)
		taking.Store(true)
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Dropped[occurrence.RetriesExhausted] != 1 || got.Written() != 1 {
			t.Errorf("settled as %v", got)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var times []time.Time
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		times = append(times, time.Now())
		if len(times) == 1 {
			return nil, apierrors.NewTooManyRequests("later", 7)
		}
		return nil, nil
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		b.Flush(t.Context())
		if got := times[1].Sub(times[0]); got != 7*time.Second {
			t.Errorf("asked again after %v", got)
		}
	})
}

func TestCloseIsBoundedAndSettlesTheRest(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) { // three for one namespace
		for i := range 10 {
			b.record(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		left := b.Close(ctx)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		if left.Series != 10 || left.Occurrences != 10 {
			t.Errorf("left %+v", left)
		}
		b.record(0)
		got := b.ledger.Totals()
		if got.Outcomes[occurrence.Uncertain] != 3 || got.Dropped[occurrence.Shutdown] != 8 || got.Pending() != 0 {
			t.Errorf("settled as %v", got)
		}
		if again := b.Close(t.Context()); again.Series != 0 {
			t.Errorf("closed again: %+v", again)
		}
	})
}

func TestPendingSeriesAreCapped(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.MaxPendingSeries = 5 }, func(t *testing.T, b *bench) {
		for i := range 10 {
			b.record(i)
			b.record(i)
		}
		if got := b.ledger.Totals(); got.Dropped[occurrence.PendingFull] != 10 || b.Pending() != (Pending{Series: 5, Occurrences: 10}) {
			t.Errorf("settled as %v, pending %+v", got, b.Pending())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}

func TestPendingBytesAreCapped(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.MaxPendingBytes = 1 << 20 }, func(t *testing.T, b *bench) {
		for range 10_000 { // of one series, and each is waited for
			b.record(0, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) {} })
		}
		got := b.Pending().Occurrences
		if got < 500 || got > 1024 || b.ledger.Totals().Dropped[occurrence.PendingFull] != 10_000-got {
			t.Errorf("%d pending, settled as %v", got, b.ledger.Totals())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}

// An apiserver that has just started answers 403 until it has read its rules.
func TestForbiddenIsNotBelievedAtOnce(t *testing.T) {
	forbidden := apierrors.NewForbidden(sinktest.EventsResource, "e",
		errors.New(`User "eventd" cannot create resource "events" in API group "" in the namespace "ns"`))
	for name, test := range map[string]struct {
		until time.Duration
		want  occurrence.Outcome
	}{"for a moment": {5 * time.Second, occurrence.Created}, "for good": {time.Hour, occurrence.Dropped}} {
		t.Run(name, func(t *testing.T) {
			var start time.Time
			c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
				if time.Since(start) < test.until {
					return nil, forbidden
				}
				return nil, nil
			})
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				start = time.Now()
				b.record(0)
				b.Flush(t.Context())
				if got := b.ledger.Totals().Outcomes[test.want]; got != 1 || time.Since(start) > b.options.ForbiddenFor+b.options.RetryMaxDelay {
					t.Errorf("settled as %v after %v", b.ledger.Totals(), time.Since(start))
				}
			})
		})
	}
}

func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		b.record(0)
		start := time.Now()
		var first sync.WaitGroup
		first.Go(func() { b.Close(t.Context()) })
		synctest.Wait()
		b.Close(t.Context())
		if b.ledger.Totals().Pending() != 0 || time.Since(start) < time.Minute {
			t.Errorf("returned after %v with %d pending", time.Since(start), b.ledger.Totals().Pending())
		}
		first.Wait()
	})
}

func TestRetryAfterDoesNotOutlastTheGivingUp(t *testing.T) {
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		return nil, apierrors.NewTooManyRequests("tomorrow", 86400)
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		start := time.Now()
		b.record(0)
		b.Flush(t.Context())
		if took := time.Since(start); took > 2*b.options.RetryFor {
			t.Errorf("given up after %v", took)
		}
	})
}

func TestOldOccurrencesAreGivenUpWhileNewOnesArrive(t *testing.T) {
	c := scripted(func(_ context.Context, v apiclient.Verb) (*corev1.Event, error) {
		if v == apiclient.VerbCreate {
			return nil, apierrors.NewAlreadyExists(sinktest.EventsResource, "e")
		}
		return nil, apierrors.NewTooManyRequestsError("later")
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for range 3600 {
			b.record(0)
			time.Sleep(time.Second)
		}
		limit := int64((b.options.RetryFor + b.options.RetryFor/deadlineGrains + 2*b.options.RetryMaxDelay) / time.Second)
		if got := b.Pending().Occurrences; got > limit {
			t.Errorf("%d pending, want at most %d", got, limit)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
	})
}

func TestWriteRateIsBounded(t *testing.T) {
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { return nil, nil })
	bubble(t, c, func(o *Options) { o.QPS, o.Burst = 100, 50 }, func(t *testing.T, b *bench) {
		start := time.Now()
		for i := range 1050 {
			b.record(i)
		}
		b.Flush(t.Context())
		if took := time.Since(start).Round(time.Second); took != 10*time.Second {
			t.Errorf("1,000 requests above the burst took %v", took)
		}
	})
}

// Whoever waits for the outcome of what is left at the end is told.
func TestWhoeverWaitsIsToldThatTheSinkIsClosed(t *testing.T) {
	bubble(t, scripted(hang), nil, func(t *testing.T, b *bench) {
		var ends []occurrence.Settlement
		b.recordLater(0, time.Hour, func(o *occurrence.Occurrence) {
			o.Settled = func(s occurrence.Settlement) { ends = append(ends, s) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.Close(ctx)
		if len(ends) != 1 || ends[0].Reason != occurrence.Shutdown {
			t.Errorf("told %+v", ends)
		}
	})
}

// Flush waits for what had been added, not for what others go on adding.
func TestFlushEndsThoughMoreIsAddedAllTheTime(t *testing.T) {
	c := newClocked()
	c.takes = 100 * time.Millisecond
	timed(t, c, nil, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		settled := make(chan struct{})
		b.record(0, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { close(settled) } })
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 1; ctx.Err() == nil; i++ {
				b.record(i % 10)
				time.Sleep(30 * time.Millisecond)
			}
		}()
		b.Flush(ctx)
		<-settled
		if took := time.Since(c.begun); took > time.Minute {
			t.Errorf("it took %v, what had been added %v", took, c.takes)
		}
		cancel()
		<-done
	})
}

func TestWaitAfterManyFailuresStaysWithinItsBounds(t *testing.T) {
	for _, base := range []time.Duration{1, 50 * time.Millisecond, 20 * time.Second, time.Hour, 1<<63 - 1} {
		o := DefaultOptions()
		o.RetryBaseDelay, o.RetryMaxDelay = base, max(base, o.RetryMaxDelay)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		s := &Sink{options: o}
		for failures := range 100 {
			if d := s.backoff(failures); d < base/2 || d > o.RetryMaxDelay {
				t.Errorf("%v after %d failures, from %v on", d, failures, base)
			}
		}
	}
}

// A client that ends its goroutine, as one that calls t.FailNow does, costs what
// it was asked for and not the process.
func TestClientThatEndsItsGoroutineDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	const child = "EVENTD_TEST_GOEXIT"
	if os.Getenv(child) == "" {
		run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		run.Env = append(os.Environ(), child+"=1")
		if out, err := run.CombinedOutput(); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			t.Errorf("%v: %s", err, first)
		}
		return
	}
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { runtime.Goexit(); return nil, nil })
	b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
	var err error
	if b.Sink, err = New(t.Context(), c, b.ledger, unlimited()); err != nil {
		t.Fatal(err)
	}
	b.record(0)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.Close(ctx)
}

// A series that is reported all the time is written all the time, which is no
// failure.
func TestSeriesThatIsAlwaysDueHasNotFailed(t *testing.T) {
	for name, retryFor := range map[string]time.Duration{"long": time.Hour, "short": time.Second} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			c.takes = 2 * time.Second
			timed(t, c, func(o *Options) { o.RetryFor = retryFor }, func(t *testing.T, b *bench) {
				for range 400 {
					b.record(0)
					time.Sleep(500 * time.Millisecond)
				}
				b.Flush(t.Context())
				if got := b.ledger.Totals(); got.Written() != got.Recorded {
					t.Errorf("dropped %v, though all was taken", got.Dropped)
				}
				for _, class := range []apiclient.Class{apiclient.ClassExists, apiclient.ClassRetry, apiclient.ClassLost} {
					if n := testutil.ToFloat64(b.metrics.retries.WithLabelValues(string(class))); n != 0 {
						t.Errorf("%v waits after an answer of class %q", n, class)
					}
				}
			})
		})
	}
}

func TestFlushWaitsForWhatWasThereAndForNothingElse(t *testing.T) {
	e := newFlushGenerations()
	if before := e.end(); !e.isOver(before) {
		t.Error("there was nothing")
	}
	first := e.enter()
	one := e.end()
	two := e.end()
	later := e.enter()
	if e.isOver(one) || e.isOver(two) || first == later {
		t.Errorf("generations %d and %d of entries %d and %d", one, two, first, later)
	}
	if !e.leave(first) || !e.isOver(one) || !e.isOver(two) {
		t.Error("what came later is waited for")
	}
	three := e.end()
	if e.isOver(three) || !e.leave(later) || !e.isOver(three) {
		t.Error("what is there is not waited for")
	}
}

func TestNamespaceMakesNoOthersSeriesForgotten(t *testing.T) {
	const size, own = 50, 20
	bubble(t, byNamespace{}, func(o *Options) { o.MaxIdleSeries = size }, func(t *testing.T, b *bench) {
		quiet := inNamespace("quiet")
		for i := range own {
			b.record(i, quiet)
		}
		synctest.Wait()
		for i := range 10 * size {
			b.record(i)
		}
		b.Flush(t.Context())
		b.mu.Lock()
		defer b.mu.Unlock()
		kept := 0
		for _, a := range b.idle.Values() {
			if a.Namespace == "quiet" {
				kept++
			}
		}
		if kept != own || b.idle.Len() != size {
			t.Errorf("%d of %d series of the quiet namespace are remembered, %d in all", kept, own, b.idle.Len())
		}
	})
}
