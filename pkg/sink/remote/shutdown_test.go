package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// Flush and Close wait for no further occurrences.
func TestFlushSendsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		s := newSubject(t, f, func(o *Options) { o.Delay = time.Hour })
		began := time.Now()
		s.record("ns", "web")
		if left := s.Flush(t.Context()); left != (sink.Pending{}) || f.counted() != 1 {
			t.Errorf("%+v are left, %d counted", left, f.counted())
		}
		s.record("ns", "web")
		if s.balanced(t); f.counted() != 1 {
			t.Error("the Delay does not apply after a Flush")
		}
		if left := s.close(t, t.Context()); left != (sink.Pending{}) || f.counted() != 2 {
			t.Errorf("%+v are left, %d counted", left, f.counted())
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		s.record("ns", "late")
		if totals := s.balanced(t); totals.Dropped[occurrence.Shutdown] != 1 {
			t.Errorf("dropped %v", totals.Dropped)
		}
	})
}

// Flush waits for what is in flight or is sent again, but not for what comes later, and not longer than its context.
func TestFlushWaitsForWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		f.before = func(ctx context.Context, n int, events []corev1.Event) error {
			switch {
			case events[0].Namespace == "late":
				<-ctx.Done()
				return ctx.Err()
			case n == 1:
				time.Sleep(time.Second)
				return statusError(429, 5)
			}
			return nil
		}
		s := newSubject(t, f)
		s.record("ns", "web")
		time.Sleep(s.options.Delay)
		began := time.Now()
		time.AfterFunc(2500*time.Millisecond, func() { s.record("late", "web") })
		for _, test := range []struct {
			limit, took time.Duration
			left        int
		}{{time.Second / 2, time.Second / 2, 1}, {2 * time.Second, 2 * time.Second, 1}, {10 * time.Second, 6 * time.Second, 1}} {
			ctx, cancel := context.WithDeadline(t.Context(), began.Add(test.limit))
			left := s.Flush(ctx)
			if took := time.Since(began); took != test.took || left.Series != test.left {
				t.Errorf("%+v are pending after %v", left, took)
			}
			cancel()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.close(t, ctx)
	})
}

// Close cancels requests when its context ends, and their answers count. What has no answer then may have been counted.
func TestAnswersDuringCloseCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFakeEventd()
		f.before = func(ctx context.Context, _ int, events []corev1.Event) error {
			switch events[0].Namespace {
			case "answered":
				<-ctx.Done()
				return nil
			case "unsent":
				<-ctx.Done()
				return &UnsentError{ctx.Err()}
			case "refused":
				return statusError(429, 60)
			default:
				<-release
				return nil
			}
		}
		s := newSubject(t, f)
		for _, namespace := range []string{"answered", "unsent", "refused", "hanging"} {
			s.record(namespace, "web")
			s.record(namespace, "web")
		}
		time.Sleep(s.options.Delay)
		s.balanced(t)
		s.mu.Lock()
		refused := s.queues[target{namespace: "refused"}]
		sent := s.queues[target{namespace: "hanging"}].call
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		left := s.close(t, ctx)
		if took := time.Since(began); took > time.Second+2*grace.Period || left != (sink.Pending{Series: 3, Occurrences: 6}) {
			t.Errorf("%+v were left after %v", left, took)
		}
		totals := s.balanced(t)
		want(t, totals, map[occurrence.Outcome]int64{occurrence.Acknowledged: 2, occurrence.Uncertain: 2, occurrence.Dropped: 4})
		if totals.Dropped[occurrence.Shutdown] != 4 {
			t.Errorf("dropped %v", totals.Dropped)
		}
		if sent.timer.Stop() || refused.timer.Stop() {
			t.Error("a timer is left")
		}
		made := f.made()
		s.wake(refused) // as a timer that fired during Close
		time.Sleep(2 * time.Minute)
		if s.balanced(t); f.made() != made {
			t.Error("something is sent after Close")
		}
		close(release)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 2, occurrence.Uncertain: 2, occurrence.Dropped: 4})
	})
}

// Close ends at once when all requests have returned, and the requests when nothing is pending.
func TestCloseWaitsForRequestsThatReturn(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeEventd()
			var s *subject
			f.before = func(ctx context.Context, n int, _ []corev1.Event) error {
				if n > 1 {
					return nil
				}
				<-s.requests.Done() // whatever the timeout of the request
				time.Sleep(10 * time.Millisecond)
				return ctx.Err()
			}
			s = newSubject(t, f)
			s.record("ns", "web")
			time.Sleep(s.options.Delay)
			outcome := occurrence.Uncertain
			if abandoned { // and sent again
				time.Sleep(2 * s.options.RequestTimeout)
				outcome = occurrence.Acknowledged
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began := time.Now()
			s.Close(ctx)
			if took := time.Since(began); took != 10*time.Millisecond || s.calls != 0 || !errors.Is(context.Cause(s.requests), errClosed) {
				t.Errorf("it took %v, %d requests have not returned", took, s.calls)
			}
			want(t, s.balanced(t), map[occurrence.Outcome]int64{outcome: 1})
		})
	}
}

// A callback that does not return holds up neither Close nor a Flush at the same time.
func TestCallbackThatHangsDelaysNoClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFakeEventd()
		f.before = func(context.Context, int, []corev1.Event) error { return statusError(429, 60) }
		s := newSubject(t, f)
		s.record("ns", "web", func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { <-release } })
		flushed := make(chan sink.Pending, 1)
		go func() { flushed <- s.Flush(context.WithoutCancel(t.Context())) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s.close(t, ctx)
		if took := time.Since(began); took != time.Second+grace.Period {
			t.Errorf("it took %v", took)
		}
		if len(flushed) != 1 {
			t.Fatal("Flush waits for what is settled")
		}
		close(release)
	})
}
