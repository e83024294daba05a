package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/sinktest"
)

// overtaken is an apiserver whose Events others have written whenever the sink wants to.
// They have counted what a client reported with the last of some reads.
func overtaken(last int) *fake {
	f := &fake{}
	var own []string // the parts of the annotation that the sink would have written
	f.answer = func(_ context.Context, c *call) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch c.verb {
		case apiclient.VerbCreate:
			own = strings.Split(c.event.Annotations[counter.Annotation], ";")
			f.server.Create(c.name, c.event)
			return apierrors.NewAlreadyExists(sinktest.EventsResource, c.name)
		case apiclient.VerbPatch:
			return apierrors.NewConflict(sinktest.EventsResource, c.name, errors.New("it has been modified"))
		}
		// The annotation as another sink would have left it, which does not list this one.
		var kept []string
		for _, part := range own {
			if part == "v1" || strings.HasPrefix(part, "n=") && f.verbs[apiclient.VerbRead] >= last {
				kept = append(kept, part)
			}
		}
		event := f.server.Objects[c.name]
		event.ResourceVersion, event.Annotations[counter.Annotation] = fmt.Sprint(c.number), strings.Join(kept, ";")
		return nil
	}
	return f
}

// Whichever request of a run shows that a report is counted, it settles.
func TestWhatOthersHaveCountedMeanwhileIsSettled(t *testing.T) {
	for last := 1; last <= maxSteps; last++ {
		f := overtaken(last)
		bubble(t, f, nil, func(t *testing.T, b *bench) {
			// The series is no longer pending in the callback.
			b.record(0, byClient("client", 1), onSettled(func(occurrence.Settlement) { b.flush() }))
			b.flush()
			b.wantEnds(ends{occurrence.Replayed: 1})
			if reads, patches := f.verbs[apiclient.VerbRead], f.verbs[apiclient.VerbPatch]; reads != last || patches != last-1 {
				t.Errorf("%d reads and %d patches, want %d and %d", reads, patches, last, last-1)
			}
		})
	}
}

// The retries of one occurrence end without those of a later one of its series, and without
// a write that is deferred.
func TestYoungOccurrencesOutliveTheOldOfTheirSeries(t *testing.T) {
	const m, h = time.Minute, time.Hour
	for name, test := range map[string]struct{ after, delay, failsFor, want time.Duration }{
		"recorded later": {9 * m, 0, 11 * m, 11 * m},
		"deferred":       {m, 2 * h, h, 2*h + m},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: failUntil(test.failsFor, errTooMany)}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				b.record(0)
				pass(test.after)
				b.recordLater(0, test.delay)
				pass(3 * time.Hour)
				b.wantEnds(ends{occurrence.RetriesExhausted: 1, written: 1})
				f.wantStored(t, 1, 1)
				if last := f.writes[len(f.writes)-1]; last < test.want || last > test.want+b.options.RetryMaxDelay {
					t.Errorf("written after %v, want %v", last, test.want)
				}
			})
		})
	}
}

func TestOldOccurrencesAreGivenUpWhileNewOnesArrive(t *testing.T) {
	f := &fake{answer: func(_ context.Context, c *call) error {
		if c.verb == apiclient.VerbCreate {
			return apierrors.NewAlreadyExists(sinktest.EventsResource, "e")
		}
		return errTooMany
	}}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		for range 3600 {
			b.record(0)
			time.Sleep(time.Second)
		}
		limit := int64((b.options.RetryFor + b.options.RetryFor/deadlineGrains + 2*b.options.RetryMaxDelay) / time.Second)
		if got := b.Pending().Occurrences; got > limit {
			t.Errorf("%d pending, want at most %d", got, limit)
		}
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
			want := min(float64(base)*math.Pow(2, float64(max(failures, 1)-1)), float64(o.RetryMaxDelay))
			if d := s.backoff(failures); d < base/2 || d > o.RetryMaxDelay || float64(d) < want/2-1 || float64(d) > want {
				t.Errorf("%v after %d failures, from %v on", d, failures, base)
			}
		}
	}
}

// A series that is reported all the time is written all the time, which is no
// failure.
func TestSeriesThatIsAlwaysDueHasNotFailed(t *testing.T) {
	for _, retryFor := range []time.Duration{time.Hour, time.Second} {
		t.Run(retryFor.String(), func(t *testing.T) {
			bubble(t, &fake{takes: 2 * time.Second}, func(o *Options) { o.RetryFor = retryFor }, func(t *testing.T, b *bench) {
				for range 400 {
					b.record(0)
					time.Sleep(500 * time.Millisecond)
				}
				b.flush()
				b.wantEnds(ends{written: 400})
				for _, class := range []apiclient.Class{apiclient.ClassExists, apiclient.ClassRetry, apiclient.ClassLost} {
					if n := testutil.ToFloat64(b.metrics.retries.WithLabelValues(string(class))); n != 0 {
						t.Errorf("%v waits after an answer of class %q", n, class)
					}
				}
			})
		})
	}
}

// A wait after a failure ends neither for a new occurrence nor for a flush.
func TestBackOffIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		delay time.Duration
		flush bool
	}{
		"new occurrences":                {0, false},
		"new occurrences, due within it": {5 * time.Second, false},
		"a flush":                        {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: failUntil(time.Second, apierrors.NewTooManyRequests("later", 30))}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				b.record(0)
				for i := range 10 {
					pass(time.Second)
					b.recordLater(0, test.delay, []change{normal, awaited}[i%2])
				}
				if test.flush {
					b.flush()
				}
				f.wantWrites(t, 11, 0, 30*time.Second)
			})
		})
	}
}

func TestRefusalDoesNotHurryWhatIsDeferred(t *testing.T) {
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil)
	f := &fake{takes: time.Second, answer: failUntil(1, invalid)}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		b.recordLater(0, time.Hour)
		f.wantWrites(t, 1, 0, time.Hour)
	})
}

// The retries of a deferred write are limited from its deadline on.
func TestRetriesCountFromTheDueTime(t *testing.T) {
	for name, test := range map[string]struct {
		failsFor time.Duration
		err      error
		want     ends
	}{
		"throttled for nine minutes": {9 * time.Minute, errTooMany, ends{written: 1}},
		"throttled for a day":        {24 * time.Hour, errTooMany, ends{occurrence.RetriesExhausted: 1}},
		"forbidden for five seconds": {5 * time.Second, errForbidden, ends{written: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{answer: failUntil(time.Hour+test.failsFor, test.err)}, nil, func(t *testing.T, b *bench) {
				b.recordLater(0, time.Hour)
				pass(time.Hour + b.options.RetryFor - time.Second)
				if test.failsFor > b.options.RetryFor && b.Pending().Occurrences != 1 {
					t.Error("the retries end early")
				}
				pass(b.options.RetryMaxDelay + 2*time.Second)
				b.wantEnds(test.want)
			})
		})
	}
}

// A write is retried until it takes effect, the answer is permanent, or RetryFor has passed.
func TestSeriesThatIsNeverTakenIsGivenUp(t *testing.T) {
	const most = 140 // doubling from 50 ms to 10 s takes 8 attempts, and then one follows every 5 to 10 s
	o := DefaultOptions()
	dropped := func(reason occurrence.Reason) ends { return ends{reason: 1} }
	contradicting := func(_ context.Context, c *call) error {
		if c.verb == apiclient.VerbCreate {
			return apierrors.NewAlreadyExists(sinktest.EventsResource, "e")
		}
		return apierrors.NewNotFound(sinktest.EventsResource, "e")
	}
	for name, test := range map[string]struct {
		answer        answer
		want          ends
		from, to      time.Duration // when it settles
		least, atMost int           // requests
	}{
		"throttled": {fail(errTooMany), dropped(occurrence.RetriesExhausted), o.RetryFor, o.RetryFor + o.RetryMaxDelay, 60, most},
		"lost":      {fail(errNoAnswer), ends{occurrence.Uncertain: 1}, o.RetryFor, o.RetryFor + o.RetryMaxDelay, 60, most},
		// An apiserver that contradicts itself gets no more requests than one that does not answer.
		"contradicting": {contradicting, dropped(occurrence.RetriesExhausted), o.RetryFor, o.RetryFor + o.RetryMaxDelay, 1, most * maxSteps},
		"throttled with a Retry-After": {failUntil(1, apierrors.NewTooManyRequests("later", 7)), ends{written: 1},
			7 * time.Second, 7 * time.Second, 2, 2},
		"throttled with a Retry-After of a day": {fail(apierrors.NewTooManyRequests("tomorrow", 86400)), dropped(occurrence.RetriesExhausted),
			0, 2 * o.RetryFor, 1, most},
		"forbidden for a moment": {failUntil(5*time.Second, errForbidden), ends{written: 1}, 0, o.ForbiddenFor + o.RetryMaxDelay, 2, most},
		"forbidden for good":     {fail(errForbidden), dropped(occurrence.Forbidden), 0, o.ForbiddenFor + o.RetryMaxDelay, 2, most},
		"a create that is not found": {fail(apierrors.NewGenericServerResponse(404, "post", sinktest.EventsResource, "", "404 page not found", 0, true)),
			dropped(occurrence.Refused), 0, 0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: test.answer}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				b.record(0)
				b.flush()
				b.wantEnds(test.want)
				if took, n := time.Since(f.began), f.sent(); took < test.from || took > test.to || n < test.least || n > test.atMost {
					t.Errorf("settled after %v and %d requests", took, n)
				}
			})
		})
	}
}
