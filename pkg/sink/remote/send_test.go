package remote

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
)

// A request that does not return, whatever its context, is abandoned. Its Events are sent again, and its late answer
// has no effect.
func TestRequestThatDoesNotReturnIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFakeEventd()
		var first context.Context
		f.before = func(ctx context.Context, n int, _ []corev1.Event) error {
			if n == 1 {
				first = ctx
				<-release
			}
			return nil
		}
		s := newSubject(t, f)
		s.record("ns", "web")
		time.Sleep(s.options.Delay)
		synctest.Wait()
		if deadline, _ := first.Deadline(); time.Until(deadline) != s.options.RequestTimeout {
			t.Errorf("the request ends in %v, want %v", time.Until(deadline), s.options.RequestTimeout)
		}
		abandoned := s.call("ns")
		time.Sleep(s.options.RequestTimeout + grace.Period - 1)
		s.balanced(t)
		if s.call("ns") != abandoned {
			t.Error("the request is abandoned too early")
		}
		time.Sleep(s.options.RetryBaseDelay + 1)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		if len(f.events) != 1 || f.made() != 2 {
			t.Errorf("%d Events in %d requests", len(f.events), f.made())
		}
		close(release)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		if !errors.Is(first.Err(), context.DeadlineExceeded) {
			t.Errorf("the context of the request: %v", first.Err())
		}
		s.close(t, t.Context())
	})
}

// A request that has returned leaves no timer, which would keep its Events, and no context.
func TestRequestThatReturnsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		var requests []context.Context
		var sent *call
		var s *subject
		f.before = func(ctx context.Context, _ int, _ []corev1.Event) error {
			requests, sent = append(requests, ctx), s.call("ns")
			return nil
		}
		s = newSubject(t, f)
		s.record("ns", "web")
		time.Sleep(s.options.Delay)
		s.balanced(t)
		if len(requests) != 1 || !errors.Is(requests[0].Err(), context.Canceled) || sent.timer.Stop() {
			t.Error("something of the request is left")
		}
		s.close(t, t.Context())
	})
}

// Requests wait for others to return, in the order of their namespaces.
func TestRequestsWaitForOneThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		var order []string
		f.before = func(_ context.Context, _ int, events []corev1.Event) error {
			order = append(order, events[0].Namespace)
			time.Sleep(time.Second)
			return nil
		}
		s := newSubject(t, f, func(o *Options) { o.Concurrency = 1 })
		for i := range 5 {
			s.record(fmt.Sprint("ns-", i), "web")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(s.options.Delay)
		s.record("ns-0", "other")
		time.Sleep(7 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 6})
		if got := fmt.Sprint(order); got != "[ns-0 ns-1 ns-2 ns-3 ns-4 ns-0]" {
			t.Errorf("sent in the order %s", got)
		}
		s.close(t, t.Context())
	})
}

// A Retry-After is honoured, and nothing is lost meanwhile.
func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		f.before = func(_ context.Context, n int, _ []corev1.Event) error {
			if n == 1 {
				return statusError(429, 30)
			}
			return nil
		}
		s := newSubject(t, f)
		s.record("ns", "web")
		time.Sleep(29 * time.Second)
		if n := f.counted(); n != 0 || f.made() != 1 {
			t.Errorf("counted %d after %d requests", n, f.made())
		}
		time.Sleep(2 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		s.close(t, t.Context())
	})
}

// A Retry-After, of a batch or an Event, is honoured, but no longer than an Event is sent again.
func TestRetryAfterHasALimit(t *testing.T) {
	long := status(429)
	long.Details = &metav1.StatusDetails{RetryAfterSeconds: 1 << 20}
	for name, fault := range map[string]func(*fakeEventd){
		"of a batch": func(f *fakeEventd) {
			f.before = func(_ context.Context, n int, _ []corev1.Event) error {
				if n == 1 {
					return statusError(429, 1<<20)
				}
				return nil
			}
		},
		"of an Event": func(f *fakeEventd) {
			f.refuse = func(*corev1.Event) metav1.Status {
				if f.requests == 1 {
					return long
				}
				return metav1.Status{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				fault(f)
				s := newSubject(t, f)
				s.record("ns", "web")
				time.Sleep(s.options.RetryFor - time.Second)
				if s.balanced(t); f.made() != 1 {
					t.Errorf("%d requests", f.made())
				}
				time.Sleep(2 * time.Second)
				want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
				s.close(t, t.Context())
			})
		})
	}
}

// What may have been counted once is uncertain, whatever the last answer was, and all that is given up has its error.
func TestDoubtIsNotForgotten(t *testing.T) {
	lost, refused := errors.New("reset"), statusError(429, 0)
	for name, test := range map[string]struct {
		first, then       error
		answer, answering metav1.Status
	}{
		"a lost batch, then none":       {first: lost, then: refused},
		"a lost batch, then refusals":   {first: lost, answering: status(422)},
		"unavailable, then refusals":    {answer: status(503), answering: status(422)},
		"unavailable, then too many":    {answer: status(503), answering: status(429)},
		"unavailable, then none":        {answer: status(503), then: refused},
		"unavailable, then a shutdown":  {answer: status(503), answering: status(429)},
		"a batch too large at the last": {first: lost, then: statusError(413, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				f.before = func(_ context.Context, n int, _ []corev1.Event) error {
					if n == 1 {
						return test.first
					}
					return test.then
				}
				f.refuse = func(*corev1.Event) metav1.Status {
					if f.requests == 1 {
						return test.answer
					}
					return test.answering
				}
				s := newSubject(t, f)
				var settled occurrence.Settlement
				s.record("ns", "web", func(o *occurrence.Occurrence) { o.Settled = func(s occurrence.Settlement) { settled = s } })
				if name == "unavailable, then a shutdown" {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					s.close(t, ctx)
				} else {
					time.Sleep(11 * time.Minute)
					s.close(t, t.Context())
				}
				want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Uncertain: 1})
				if settled.Outcome != occurrence.Uncertain || settled.Err == nil {
					t.Errorf("%+v", settled)
				}
			})
		})
	}
}

func TestDelaysDoubleUpToTheirLimit(t *testing.T) {
	s := newSubject(t, newFakeEventd(), func(o *Options) { o.RetryBaseDelay, o.RetryMaxDelay = 10*time.Second, time.Hour })
	defer s.Close(t.Context())
	full := s.options.RetryBaseDelay
	for failures := 1; failures < 100; failures++ {
		seen := make(map[time.Duration]bool)
		for range 100 {
			delay := s.backoff(failures)
			if seen[delay] = true; delay < full/2 || delay > full {
				t.Fatalf("%v after %d failures, want %v to %v", delay, failures, full/2, full)
			}
		}
		if len(seen) == 1 {
			t.Errorf("the delay after %d failures is not random", failures)
		}
		full = min(2*full, s.options.RetryMaxDelay)
	}
}

// While eventd is away or overloaded, the requests become fewer, even if it asks for less.
func TestDelaysGrowWhileEventdFails(t *testing.T) {
	for name, answer := range map[string]error{"away": &UnsentError{errors.New("refused")}, "overloaded": statusError(503, 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				f.before = func(context.Context, int, []corev1.Event) error { return answer }
				s := newSubject(t, f)
				s.record("ns", "web")
				const growing, long = 10 * time.Second, 5 * time.Minute
				time.Sleep(growing)
				before := f.made()
				time.Sleep(long)
				s.balanced(t)
				least, most := int(long/s.options.RetryMaxDelay), int(long/(s.options.RetryMaxDelay/2))+1
				if n := f.made() - before; before > 20 || n < least || n > most {
					t.Errorf("%d requests in %v, and then %d in %v, want %d to %d", before, growing, n, long, least, most)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				s.close(t, ctx)
			})
		})
	}
}

// The delay after a failure is the first one again when a batch has succeeded.
func TestSuccessEndsTheDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := status(429)
		later.Details = &metav1.StatusDetails{RetryAfterSeconds: 60}
		f := newFakeEventd()
		var fails atomic.Bool
		fails.Store(true)
		f.before = func(context.Context, int, []corev1.Event) error {
			if fails.Load() {
				return statusError(429, 0)
			}
			return nil
		}
		f.refuse = func(e *corev1.Event) metav1.Status {
			if e.InvolvedObject.Name == "other" { // so that the queue never becomes empty
				return later
			}
			return metav1.Status{}
		}
		s := newSubject(t, f)
		s.record("ns", "web")
		s.record("ns", "other")
		time.Sleep(30 * time.Second)
		fails.Store(false)
		time.Sleep(10 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 1})
		fails.Store(true)
		s.record("ns", "late")
		time.Sleep(s.options.Delay)
		s.balanced(t)
		fails.Store(false)
		time.Sleep(s.options.RetryBaseDelay)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 2})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.close(t, ctx)
	})
}

// A batch that eventd does not take is sent in parts, down to single Events, in few requests.
func TestBatchThatIsTooLargeIsHalved(t *testing.T) {
	for _, test := range []struct{ count, takes int }{{256, 1}, {256, 60}, {2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeEventd()
			f.before = func(_ context.Context, _ int, events []corev1.Event) error {
				if len(events) > test.takes {
					return statusError(413, 0)
				}
				return nil
			}
			s := newSubject(t, f)
			for i := range test.count {
				s.record("ns", fmt.Sprint("web-", i))
			}
			time.Sleep(time.Second)
			want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: int64(test.count)})
			if most := test.count/test.takes + bits.Len(uint(test.count)); f.made() > most {
				t.Errorf("%d requests for %d Events, want at most %d", f.made(), test.count, most)
			}
			s.close(t, t.Context())
		})
	}
}
