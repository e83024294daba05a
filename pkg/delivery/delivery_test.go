package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// P5: one receiver never returns and ignores its context, from the first batch on.
func TestAReceiverThatHangsForeverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release, calls := make(chan struct{}), 0
		b.sends["hung"] = func(context.Context, []receiver.Record) (int, error) {
			calls++
			<-release
			return 0, nil
		}
		b.apply(named("hung"), named("well"))
		b.begin()
		time.Sleep(2 * cursorInterval) // their starting points are stored
		began := time.Now()
		var want []string
		for range 100 {
			want = append(want, b.write("e", 7)...)
			if got := b.delivered("well"); !slices.Equal(got, want) {
				t.Fatalf("the other receiver got %d of %d at once", len(got), len(want))
			}
			time.Sleep(time.Second)
		}
		s := b.status("hung")
		if s.State != StateHanging || s.Pending != 700 || s.Lag != time.Since(began) || calls != 1 {
			t.Errorf("after %d calls: %+v", calls, s)
		}
		if took := b.end(nil); took > 3*time.Second {
			t.Errorf("the term ended after %s", took)
		}
		attempts := b.account("hung").attempts
		if s := b.status("hung"); s.HandedOver != 700 || s.State != StateStandby || attempts[resultTimeout] != 1 || attempts[resultCanceled] != 0 {
			t.Errorf("after the term: %+v, attempts %v", s, attempts)
		}
		b.begin()
		b.apply(named("well"), v1alpha1.Receiver{Name: "hung", BatchSize: new(int32(5))})
		time.Sleep(time.Minute)
		if calls != 1 {
			t.Errorf("%d calls beside the first one", calls-1)
		}
		close(release)
		time.Sleep(time.Minute)
		if s := b.status("hung"); s.Pending != 0 || s.Delivered != 700 || s.State != StateWaiting {
			t.Errorf("after it has returned: %+v", s)
		}
		b.end(nil)
	})
}

// A destination that takes a part of a batch within the timeout is not left alone for longer and
// longer.
func TestADestinationThatIsSlowIsNotTakenForAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		attempts := 0
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			time.Sleep(time.Second)
			if attempts++; attempts < 50 {
				return 0, receiver.Progressed(context.DeadlineExceeded)
			}
			return 0, nil
		}
		b.apply(named("a"))
		b.begin()
		b.write("e", 100)
		time.Sleep(50*time.Second + 50*2*minBackoff)
		if s := b.status("a"); s.Delivered != 100 {
			t.Errorf("%d are delivered after %d attempts", s.Delivered, attempts)
		}
		b.end(nil)
	})
}

// What is not in its batch stays with the reader, however much there is.
func TestAWorkerHoldsOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sends["a"] = func(ctx context.Context, batch []receiver.Record) (int, error) {
			if len(batch) > 10 {
				t.Errorf("a batch of %d", len(batch))
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(10)), Timeout: &metav1.Duration{Duration: time.Hour}})
		b.begin()
		b.write("e", 10_000)
		if r := b.readers[0]; r.returned > 10 || r.most > 10 {
			t.Errorf("the worker has taken %d, %d at once", r.returned, r.most)
		}
		if s := b.status("a"); s.Pending != 10_000 || s.State != StateSending {
			t.Errorf("%+v", s)
		}
		b.end(nil)
	})
}

// Large Events make smaller requests: 40 of 100 KiB, of one batch.
func TestARequestIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var sizes []int
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			sizes = append(sizes, len(batch))
			return 0, nil
		}
		for i := range 40 {
			b.history.write(fmt.Sprint(i)).Message = strings.Repeat("m", 100<<10)
		}
		b.history.write("huge").Message = strings.Repeat("m", 2*maxRequestBytes)
		b.apply(v1alpha1.Receiver{Name: "a", From: v1alpha1.FromOldest})
		b.begin()
		if want := []int{10, 10, 10, 10, 1}; !slices.Equal(sizes, want) {
			t.Errorf("requests of %v, want %v", sizes, want)
		}
		b.end(nil)
	})
}

// Everything that is refused for good is given up, and nothing else.
func TestOnlyWhatIsRefusedIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		bad := map[string]bool{}
		attempts := 0
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			attempts++
			if slices.ContainsFunc(batch, func(r receiver.Record) bool { return bad[r.ID] }) {
				return 0, &receiver.Error{Permanent: true, Err: errors.New("413")}
			}
			return 0, nil
		}
		var want []string
		for i := range 64 {
			id := idOf(b.history.write(fmt.Sprint("e", i)))
			if bad[id] = i == 0 || i == 40; !bad[id] {
				want = append(want, id)
			}
		}
		b.apply(v1alpha1.Receiver{Name: "a", From: v1alpha1.FromOldest})
		b.begin()
		s := b.status("a")
		if got := b.delivered("a"); !slices.Equal(got, want) || s.Rejected != 2 || s.Delivered != 62 || attempts != 23 {
			t.Errorf("delivered %d, %d attempts, %+v", len(got), attempts, s)
		}
		b.end(nil)
		if stored, _ := b.store.get("a"); !strings.Contains(stored, fmt.Sprint(b.history.head)) {
			t.Errorf("the cursor is %s", stored)
		}
	})
}

func TestFailedAttemptsAreRepeatedLater(t *testing.T) {
	unwell := errors.New("unwell")
	for name, test := range map[string]struct {
		failure   func() (int, error)
		from, to  time.Duration // of three failures
		result    result
		delivered int64
	}{
		"error":               {func() (int, error) { return 0, unwell }, 350 * time.Millisecond, 700 * time.Millisecond, resultError, 4},
		"panic":               {func() (int, error) { panic("unwell") }, 350 * time.Millisecond, 700 * time.Millisecond, resultError, 4},
		"asks to wait":        {func() (int, error) { return 0, &receiver.Error{RetryAfter: 20 * time.Second, Err: unwell} }, time.Minute, time.Minute, resultThrottled, 4},
		"asks for too long":   {func() (int, error) { return 0, &receiver.Error{RetryAfter: time.Hour, Err: unwell} }, 15 * time.Minute, 15 * time.Minute, resultThrottled, 4},
		"rejected more":       {func() (int, error) { return 9, unwell }, 350 * time.Millisecond, 700 * time.Millisecond, resultError, 4},
		"rejects in part":     {func() (int, error) { return 3, nil }, 0, 0, resultPartial, 1},
		"rejects more":        {func() (int, error) { return 5, nil }, 0, 0, resultPartial, 0},
		"rejects less":        {func() (int, error) { return -5, nil }, 0, 0, resultSuccess, 4},
		"exceeds its timeout": {func() (int, error) { return 0, fmt.Errorf("no answer: %w", context.DeadlineExceeded) }, 350 * time.Millisecond, 700 * time.Millisecond, resultTimeout, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				began, failures := time.Now(), 0
				var took time.Duration
				b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
					if took = time.Since(began); failures < 3 {
						failures++
						return test.failure()
					}
					return 0, nil
				}
				b.apply(named("a"))
				b.begin()
				b.write("e", 4)
				time.Sleep(time.Hour)
				s := b.status("a")
				if took < test.from || took > test.to || s.Delivered != test.delivered || s.Delivered+s.Rejected != 4 {
					t.Errorf("after %s: %+v", took, s)
				}
				if b.account("a").attempts[test.result] == 0 {
					t.Errorf("attempts: %v", b.account("a").attempts)
				}
				b.end(nil)
			})
		})
	}
}

func TestTheBackoffIsBounded(t *testing.T) {
	for failures, most := range map[int]time.Duration{0: minBackoff, 1: 2 * minBackoff, 8: 25600 * time.Millisecond, 9: maxBackoff, 1 << 40: maxBackoff} {
		for range 100 {
			if d := sleep.Backoff(minBackoff, maxBackoff, failures+1); d < most/2 || d > most {
				t.Errorf("%s after %d failures", d, failures)
			}
		}
	}
}

// A receiver that cannot be made, or takes forever, delays no other one.
func TestAReceiverStartsWhenItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		began, release := time.Now(), make(chan struct{})
		b.open = func(r v1alpha1.Receiver) error {
			switch {
			case r.Name == "hung":
				<-release
			case r.Name == "late" && time.Since(began) < time.Minute:
				return errors.New("no such file")
			}
			return nil
		}
		b.apply(named("hung"), named("late"), named("well"))
		b.begin()
		time.Sleep(2 * cursorInterval) // their starting points are stored
		want := b.write("e", 3)
		if got := b.delivered("well"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		if s := b.status("late"); s.State != StateBackingOff || s.LastError != "no such file" || s.Pending != 3 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * time.Minute)
		if got := b.delivered("late"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		close(release)
		synctest.Wait()
		if got := b.delivered("hung"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		b.end(nil)
	})
}
