package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

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
		closeSoon(t, b)
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

// throttled refuses for a while, and asks to wait.
func throttled(until time.Duration, seconds int) func(time.Duration) error {
	return func(since time.Duration) error {
		if since < until {
			return apierrors.NewTooManyRequests("later", seconds)
		}
		return nil
	}
}

func TestNewOccurrenceDoesNotShortenABackOff(t *testing.T) {
	for name, delay := range map[string]time.Duration{"now": 0, "within it": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			c.refuse = throttled(time.Second, 30)
			timed(t, c, nil, func(t *testing.T, b *bench) {
				b.record(0)
				for range 10 {
					pass(time.Second)
					b.recordLater(0, delay)
				}
				c.wantWrites(t, 11, 0, 30*time.Second)
			})
		})
	}
}

func TestRefusalDoesNotHurryWhatIsDeferred(t *testing.T) {
	c := newClocked()
	c.takes = time.Second
	c.refuse = func(since time.Duration) error {
		if since == 0 {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil)
		}
		return nil
	}
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		b.recordLater(0, time.Hour)
		c.wantWrites(t, 1, 0, time.Hour)
	})
}

func TestFlushKeepsToBackOffs(t *testing.T) {
	c := newClocked()
	c.refuse = throttled(time.Second, 30)
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Second)
		b.recordLater(0, time.Hour)
		b.Flush(t.Context())
		c.wantWrites(t, 2, 0, 30*time.Second)
	})
}

func TestRetriesCountFromTheDueTime(t *testing.T) {
	c := newClocked()
	c.refuse = throttled(time.Hour+9*time.Minute, 0)
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Hour)
		pass(2 * time.Hour)
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("settled as %v", got)
		}
	})
	c = newClocked()
	c.refuse = throttled(24*time.Hour, 0)
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Hour)
		pass(time.Hour + b.options.RetryFor - time.Second)
		if got := b.Pending().Occurrences; got != 1 {
			t.Errorf("given up early: %v", b.ledger.Totals())
		}
		pass(b.options.RetryMaxDelay + 2*time.Second)
		if got := b.ledger.Totals().Dropped[occurrence.RetriesExhausted]; got != 1 {
			t.Errorf("settled as %v", b.ledger.Totals())
		}
	})
}

// What is deferred while an earlier write is not taken is not given up with it.
func TestWhatIsNotDueIsNotGivenUp(t *testing.T) {
	c := newClocked()
	c.refuse = throttled(time.Hour, 0)
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Second)
		b.recordLater(0, 2*time.Hour)
		pass(3 * time.Hour)
		got := b.ledger.Totals()
		if got.Dropped[occurrence.RetriesExhausted] != 1 || got.Written() != 1 || c.server.Counted() != 1 {
			t.Errorf("settled as %v", got)
		}
		if last := c.writes[len(c.writes)-1]; last != 2*time.Hour+time.Second {
			t.Errorf("written after %v", last)
		}
	})
}

func TestForbiddenIsNotBelievedAtOnceAfterADelay(t *testing.T) {
	c := newClocked()
	c.refuse = func(since time.Duration) error {
		if since < time.Hour+5*time.Second {
			return apierrors.NewForbidden(sinktest.EventsResource, "e",
				errors.New(`User "eventd" cannot create resource "events" in API group "" in the namespace "ns"`))
		}
		return nil
	}
	timed(t, c, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Hour)
		pass(2 * time.Hour)
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("settled as %v", got)
		}
	})
}

// A write is retried until it takes effect, the answer is permanent, or RetryFor has passed.
func TestSeriesThatIsNeverTakenIsGivenUp(t *testing.T) {
	const most = 140 // doubling from 50 ms to 10 s takes 8 attempts, and then one follows every 5 to 10 s
	o := DefaultOptions()
	until := func(end time.Duration, err error) func(time.Duration, apiclient.Verb) error {
		return func(since time.Duration, _ apiclient.Verb) error {
			if since < end {
				return err
			}
			return nil
		}
	}
	always := func(err error) func(time.Duration, apiclient.Verb) error { return until(time.Hour, err) }
	forbidden := apierrors.NewForbidden(sinktest.EventsResource, "e",
		errors.New(`User "eventd" cannot create resource "events" in API group "" in the namespace "ns"`))
	for name, test := range map[string]struct {
		answer        func(since time.Duration, v apiclient.Verb) error
		outcome       occurrence.Outcome
		reason        occurrence.Reason
		from, to      time.Duration // when it settles
		least, atMost int           // requests
	}{
		"throttled": {always(apierrors.NewTooManyRequestsError("later")), occurrence.Dropped, occurrence.RetriesExhausted,
			o.RetryFor, o.RetryFor + o.RetryMaxDelay, 60, most},
		"lost": {always(apierrors.NewInternalError(context.DeadlineExceeded)), occurrence.Uncertain, "",
			o.RetryFor, o.RetryFor + o.RetryMaxDelay, 60, most},
		// An apiserver that contradicts itself gets no more requests than one that does not answer.
		"contradicting": {func(_ time.Duration, v apiclient.Verb) error {
			if v == apiclient.VerbCreate {
				return apierrors.NewAlreadyExists(sinktest.EventsResource, "e")
			}
			return apierrors.NewNotFound(sinktest.EventsResource, "e")
		}, occurrence.Dropped, occurrence.RetriesExhausted, o.RetryFor, o.RetryFor + o.RetryMaxDelay, 1, most * maxSteps},
		"throttled with a Retry-After": {until(1, apierrors.NewTooManyRequests("later", 7)), occurrence.Created, "",
			7 * time.Second, 7 * time.Second, 2, 2},
		"throttled with a Retry-After of a day": {always(apierrors.NewTooManyRequests("tomorrow", 86400)), occurrence.Dropped, occurrence.RetriesExhausted,
			0, 2 * o.RetryFor, 1, most},
		"forbidden for a moment": {until(5*time.Second, forbidden), occurrence.Created, "", 0, o.ForbiddenFor + o.RetryMaxDelay, 2, most},
		"forbidden for good":     {always(forbidden), occurrence.Dropped, occurrence.Forbidden, 0, o.ForbiddenFor + o.RetryMaxDelay, 2, most},
		"a create that is not found": {always(apierrors.NewGenericServerResponse(404, "post", sinktest.EventsResource, "", "404 page not found", 0, true)),
			occurrence.Dropped, occurrence.Refused, 0, 0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var start time.Time
			requests := 0
			c := scripted(func(_ context.Context, v apiclient.Verb) (*corev1.Event, error) {
				requests++
				return nil, test.answer(time.Since(start), v)
			})
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				start = time.Now()
				b.record(0)
				b.Flush(t.Context())
				if took := time.Since(start); took < test.from || took > test.to || requests < test.least || requests > test.atMost {
					t.Errorf("settled after %v and %d requests", took, requests)
				}
				if got := b.ledger.Totals(); got.Outcomes[test.outcome] != 1 || test.reason != "" && got.Dropped[test.reason] != 1 {
					t.Errorf("settled as %v", got)
				}
			})
		})
	}
}
