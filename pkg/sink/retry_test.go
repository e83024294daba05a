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
