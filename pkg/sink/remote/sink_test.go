package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Whatever becomes of requests and answers, eventd has counted what is acknowledged, and at most
// that and what is uncertain.
func TestNothingIsCountedTwiceOrLostWithoutAnOutcome(t *testing.T) {
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeEventd()
			fault := func(ctx context.Context, effect bool) error {
				switch {
				case sometimes(0.1):
					<-ctx.Done()
					return ctx.Err()
				case sometimes(0.1):
					return errors.New("connection reset by peer")
				case sometimes(0.1):
					return statusError(503, 1)
				case !effect && sometimes(0.1):
					return statusError(429, 2)
				case !effect && sometimes(0.1):
					return &UnsentError{errors.New("connection refused")}
				case sometimes(0.05):
					panic("the client is broken")
				}
				return nil
			}
			f.before = func(ctx context.Context, _ int, _ []corev1.Event) error { return fault(ctx, false) }
			f.after = func(ctx context.Context, _ int, _ []corev1.Event) error { return fault(ctx, true) }
			f.refuse = func(*corev1.Event) metav1.Status {
				switch {
				case sometimes(0.1):
					return status(429)
				case sometimes(0.05):
					return status(503)
				case sometimes(0.02):
					return status(422)
				case sometimes(0.02):
					return status(403)
				}
				return metav1.Status{}
			}
			s := newSubject(t, f, func(o *Options) { o.MaxItems, o.MaxPendingItems = 7, 100 })
			var settled atomic.Int64
			for i := range 1000 {
				s.record(fmt.Sprint("ns-", i%5), fmt.Sprint("web-", i%30), func(o *occurrence.Occurrence) {
					if i%3 == 0 {
						newStyle(o)
					}
					o.Settled = func(occurrence.Settlement) { settled.Add(1) }
				})
				if i%50 == 49 {
					time.Sleep(200 * time.Millisecond)
					s.balanced(t)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round)*3*time.Second)
			defer cancel()
			s.close(t, ctx)
			totals := s.balanced(t)
			acknowledged, uncertain := totals.Outcomes[occurrence.Acknowledged], totals.Outcomes[occurrence.Uncertain]
			if n := f.counted(); n < acknowledged || n > acknowledged+uncertain {
				t.Errorf("eventd has counted %d of %d acknowledged and %d uncertain", n, acknowledged, uncertain)
			}
			if totals.Recorded != 1000 || settled.Load() != 1000 || acknowledged == 0 {
				t.Errorf("recorded %d, told of %d, acknowledged %d", totals.Recorded, settled.Load(), acknowledged)
			}
		})
	}
}

// What waits together is one Event with the number of its occurrences.
func TestRepeatsAreSentTogether(t *testing.T) {
	for name, style := range map[string]func(*occurrence.Occurrence){"classic": func(*occurrence.Occurrence) {}, "new style": newStyle} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				s := newSubject(t, f)
				began := time.Now()
				for i := range 1000 {
					s.record("ns", "web", style, func(o *occurrence.Occurrence) {
						o.Event.Annotations = map[string]string{"n": fmt.Sprint(i)}
					})
					time.Sleep(50 * time.Microsecond)
				}
				time.Sleep(time.Second)
				want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1000})
				if f.made() != 1 || len(f.events) != 1 {
					t.Fatalf("%d requests, %d Events", f.made(), len(f.events))
				}
				for _, e := range f.events {
					first, last := e.FirstTimestamp.Time, e.LastTimestamp.Time
					if !e.EventTime.IsZero() {
						first, last = e.EventTime.Time, e.Series.LastObservedTime.Time
					}
					if total(e) != 1000 || e.Annotations["n"] != "999" || first.Sub(began).Abs() > time.Second || last.Before(first) {
						t.Errorf("%+v", e)
					}
				}
				s.close(t, t.Context())
			})
		})
	}
}

// An eventd that never answers, even to a client that ignores its context, holds up nobody who
// records, and no shutdown.
func TestEventdThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFakeEventd()
		f.before = func(_ context.Context, n int, _ []corev1.Event) error {
			if <-release; n%2 == 0 {
				return errors.New("too late")
			}
			return nil
		}
		s := newSubject(t, f)
		for i := range 100_000 {
			s.record(fmt.Sprint("ns-", i%20), fmt.Sprint("web-", i))
			if i%10_000 == 0 {
				time.Sleep(time.Second)
			}
		}
		synctest.Wait()
		if pending := s.Pending(); pending.Series > s.options.MaxPendingItems || s.pendingBytes() > s.options.MaxPendingBytes {
			t.Errorf("%+v, %d bytes are pending", pending, s.pendingBytes())
		}
		if f.made() > s.options.Concurrency {
			t.Errorf("%d requests hang, want at most %d", f.made(), s.options.Concurrency)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		left := s.Close(ctx)
		if took := time.Since(began); took > 2*time.Second || left.Series == 0 {
			t.Errorf("closed after %v with %+v left", took, left)
		}
		totals := s.balanced(t)
		if totals.Outcomes[occurrence.Uncertain] == 0 || totals.Dropped[occurrence.Shutdown] == 0 || totals.Dropped[occurrence.PendingFull] == 0 {
			t.Errorf("%v, dropped %v", totals.Outcomes, totals.Dropped)
		}
		close(release)
		synctest.Wait()
		if after := s.balanced(t); after.Settled() != totals.Settled() {
			t.Errorf("%d are settled after the answers, %d before", after.Settled(), totals.Settled())
		}
	})
}

// The limits are filled by one namespace. Others lose nothing, and Warnings evict its Normals.
func TestNamespaceThatFloodsTakesNoPlaceOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		f.before = func(ctx context.Context, _ int, events []corev1.Event) error {
			if events[0].Namespace == "flood" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s := newSubject(t, f, func(o *Options) { o.MaxItems, o.MaxPendingItems = 50, 100 })
		for i := range 1000 {
			s.record("flood", fmt.Sprint("web-", i))
		}
		dropped := func() int64 { return s.balanced(t).Dropped[occurrence.PendingFull] }
		if n := dropped(); n != 900 {
			t.Errorf("%d are dropped, want 900", n)
		}
		for i := range 40 {
			s.record("other", fmt.Sprint("web-", i))
		}
		time.Sleep(5 * time.Second)
		if n := dropped(); n != 940 {
			t.Errorf("%d are dropped, want 940", n)
		}
		if n := s.balanced(t).Outcomes[occurrence.Acknowledged]; n != 40 || f.counted() != 40 {
			t.Errorf("%d are acknowledged, %d counted, want 40", n, f.counted())
		}
		for i := range 50 {
			s.record("flood", fmt.Sprint("bad-", i), warning)
		}
		s.mu.Lock()
		warnings := 0
		for _, i := range s.queues[target{occurrence.CoreV1, "flood"}].forming {
			if i.isWarning() {
				warnings++
			}
		}
		s.mu.Unlock()
		if warnings != 50 {
			t.Errorf("%d Warnings are pending, want 50", warnings)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.close(t, ctx)
		s.balanced(t)
	})
}

// An Event that is refused for now is sent again under its name, while others go on.
func TestEventThatIsRefusedForNowDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		attempts := make(map[string]int)
		f.refuse = func(e *corev1.Event) metav1.Status {
			if attempts[e.Name]++; e.InvolvedObject.Name == "busy" && attempts[e.Name] < 8 {
				return status(429)
			}
			return metav1.Status{}
		}
		s := newSubject(t, f)
		s.record("ns", "busy")
		for i := range 10 {
			s.record("ns", fmt.Sprint("web-", i))
			time.Sleep(200 * time.Millisecond)
			if n := f.counted(); n != int64(i+1) {
				t.Fatalf("%d are counted after %d", n, i+1)
			}
		}
		time.Sleep(time.Minute)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 11})
		s.close(t, t.Context())
	})
}

// What is given up has the outcome that is known of it.
func TestWhatIsGivenUpHasAnOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		answer  error
		status  metav1.Status
		age     time.Duration // that it has waited before it comes to the sink
		within  time.Duration
		outcome occurrence.Outcome
		reason  occurrence.Reason
	}{
		"away":                   {answer: &UnsentError{errors.New("refused")}, within: 11 * time.Minute, outcome: occurrence.Dropped, reason: occurrence.RetriesExhausted},
		"too many requests":      {answer: statusError(429, 0), within: 11 * time.Minute, outcome: occurrence.Dropped, reason: occurrence.RetriesExhausted},
		"without batches":        {answer: statusError(400, 0), within: 11 * time.Minute, outcome: occurrence.Dropped, reason: occurrence.RetriesExhausted},
		"away for long":          {answer: &UnsentError{errors.New("refused")}, age: 9 * time.Minute, within: 2 * time.Minute, outcome: occurrence.Dropped, reason: occurrence.RetriesExhausted},
		"lost":                   {answer: errors.New("reset"), within: 11 * time.Minute, outcome: occurrence.Uncertain},
		"unavailable":            {answer: statusError(503, 0), within: 11 * time.Minute, outcome: occurrence.Uncertain},
		"forbidden":              {answer: statusError(403, 0), within: 30 * time.Second, outcome: occurrence.Dropped, reason: occurrence.Forbidden},
		"too large":              {answer: statusError(413, 0), within: time.Second, outcome: occurrence.Dropped, reason: occurrence.Invalid},
		"invalid":                {status: status(422), within: time.Second, outcome: occurrence.Dropped, reason: occurrence.Invalid},
		"forbidden by admission": {status: status(403), within: time.Second, outcome: occurrence.Dropped, reason: occurrence.Forbidden},
		"no namespace":           {status: status(404), within: time.Second, outcome: occurrence.Dropped, reason: occurrence.NamespaceNotFound},
		"refused":                {status: status(418), within: time.Second, outcome: occurrence.Dropped, reason: occurrence.Refused},
		"never accepted":         {status: status(429), within: 11 * time.Minute, outcome: occurrence.Dropped, reason: occurrence.RetriesExhausted},
		"abandoned":              {status: status(503), within: 11 * time.Minute, outcome: occurrence.Uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				f.before = func(context.Context, int, []corev1.Event) error { return test.answer }
				f.refuse = func(*corev1.Event) metav1.Status { return test.status }
				s := newSubject(t, f)
				s.record("ns", "web", func(o *occurrence.Occurrence) { o.Recorded = o.Recorded.Add(-test.age) })
				time.Sleep(test.within)
				totals := s.balanced(t)
				want(t, totals, map[occurrence.Outcome]int64{test.outcome: 1})
				if test.outcome == occurrence.Dropped && totals.Dropped[test.reason] != 1 {
					t.Errorf("dropped %v, want %s", totals.Dropped, test.reason)
				}
				if len(s.queues) != 0 || s.items != 0 || s.bytes != 0 {
					t.Errorf("%d queues, %d items, %d bytes are left", len(s.queues), s.items, s.bytes)
				}
				s.close(t, t.Context())
			})
		})
	}
}

// A denial that is over soon costs nothing.
func TestForbiddenIsRetriedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		began := time.Now()
		f.before = func(context.Context, int, []corev1.Event) error {
			if time.Since(began) < 5*time.Second {
				return statusError(403, 0)
			}
			return nil
		}
		s := newSubject(t, f)
		s.record("ns", "web")
		time.Sleep(30 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		s.close(t, t.Context())
	})
}

// What has no namespace or no number of its own cannot be sent, nor can reports of clients that count by themselves:
// their names are not ours.
func TestWhatCannotBeSentIsMalformed(t *testing.T) {
	for name, spoil := range map[string]func(*occurrence.Occurrence){
		"a client's report": func(o *occurrence.Occurrence) { o.Client, o.Total = "web.1", 1 },
		"no namespace":      func(o *occurrence.Occurrence) { o.Event.Namespace = "" },
		"no Event":          func(o *occurrence.Occurrence) { o.Event = nil },
		"too many":          func(o *occurrence.Occurrence) { o.Weight = math.MaxInt32 + 1 },
		"none":              func(o *occurrence.Occurrence) { o.Weight = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				s := newSubject(t, f)
				var settled occurrence.Settlement
				s.record("ns", "web", spoil, func(o *occurrence.Occurrence) { o.Settled = func(s occurrence.Settlement) { settled = s } })
				if s.balanced(t); settled.Reason != occurrence.Malformed || settled.Err == nil || f.made() != 0 {
					t.Errorf("%+v, %d requests", settled, f.made())
				}
				s.close(t, t.Context())
			})
		})
	}
}

// The two APIs of a namespace have a batch each, and more than an Event can count is two.
func TestWhatIsNotInOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		s := newSubject(t, f)
		s.record("ns", "web", newStyle)
		s.record("ns", "web")
		for range 2 {
			s.record("ns", "many", func(o *occurrence.Occurrence) { o.Weight = math.MaxInt32 })
		}
		time.Sleep(s.options.Delay)
		s.balanced(t)
		if slices.Sort(f.apis); !slices.Equal(f.apis, []occurrence.API{occurrence.CoreV1, occurrence.EventsV1}) || len(f.events) != 4 || f.counted() != 2*math.MaxInt32+2 {
			t.Errorf("%v have %d Events that count %d", f.apis, len(f.events), f.counted())
		}
		s.close(t, t.Context())
	})
}

// The end of the context of New has no effect.
func TestSinkOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f, l := newFakeEventd(), ledger.New()
		sink, err := New(ctx, f, l, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		f.before = func(ctx context.Context, _ int, _ []corev1.Event) error { return ctx.Err() }
		cancel()
		s := &subject{sink, l}
		s.record("ns", "web")
		time.Sleep(s.options.Delay)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		s.close(t, t.Context())
	})
}
