package delivery

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// An outage of yesterday does not delay the attempt after the first failure of today.
func TestTheBackoffBeginsAnewAfterAnAnswer(t *testing.T) {
	away, refused := errors.New("away"), &receiver.Error{Permanent: true, Err: errors.New("413")}
	for name, answered := range map[string]error{"accepted": nil, "refused for good": refused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				answers := append(slices.Repeat([]error{away}, 9), answered, away, nil)
				var attempts []time.Time
				b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
					attempts = append(attempts, time.Now())
					return 0, answers[len(attempts)-1]
				}
				b.apply(named("a"))
				b.begin()
				b.write("e", 1)
				time.Sleep(5 * time.Minute)
				b.write("e", 1)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if len(attempts) != len(answers) {
					t.Fatalf("%d attempts, want %d", len(attempts), len(answers))
				}
				if waited := attempts[11].Sub(attempts[10]); waited > minBackoff {
					t.Errorf("the next attempt was after %s", waited)
				}
				b.end(nil)
			})
		})
	}
}

// A reload restarts receivers that retry, and no others.
func TestAReloadLeavesAReceiverThatHasRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		failed := false
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			if !failed {
				failed = true
				return 0, errors.New("unwell")
			}
			return 0, nil
		}
		b.apply(named("a"))
		b.begin()
		b.write("e", 1)
		time.Sleep(time.Minute)
		b.apply(named("a"), named("b"))
		synctest.Wait()
		if s := b.status("a"); !failed || s.Delivered != 1 || b.opened["a"] != 1 {
			t.Errorf("opened %d times: %+v", b.opened["a"], s)
		}
		b.end(nil)
	})
}

// The accounts are those of the receiver that is configured now, also if the reload that removed the
// former one of its name was never in force.
func TestAReceiverThatIsRemovedAndAddedAtOnceHasNewAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"), named("b"))
		b.begin()
		for range 20 { // the first reload is in force at times
			b.apply(named("b"))
			b.apply(named("a"), named("b"))
			synctest.Wait()
			time.Sleep(2 * cursorInterval)
			b.write("e", 1)
			if s := b.status("a"); s.Delivered != 1 || s.State != StateWaiting {
				t.Fatalf("%+v, want one delivery", s)
			}
		}
		b.end(nil)
	})
}

// A receiver can only end its goroutine by runtime.Goexit. It is no call that hangs.
func TestAReceiverThatEndsItsGoroutineIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			runtime.Goexit()
			return 0, nil
		}
		b.apply(named("a"))
		b.begin()
		want := b.write("e", 1)
		time.Sleep(time.Minute)
		if s := b.status("a"); s.State != StateBackingOff || s.LastError != errGoroutineEnded.Error() {
			t.Errorf("%+v", s)
		}
		b.set(func() { delete(b.sends, "a") })
		b.apply(named("a"))
		synctest.Wait()
		if got := b.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		b.end(nil)
	})
}

// A source that fails from the start is made again less and less often, one that has worked at once.
func TestASourceThatHasWorkedIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		fail := make(chan struct{})
		close(fail)
		b.source = func(s *memorySource) { s.fail, s.err = fail, errors.New("unwell") }
		b.apply(named("a"))
		b.begin()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(b.sources); n < 20 || n > 60 {
			t.Errorf("%d sources in 10 minutes", n)
		}
		b.set(func() { fail = make(chan struct{}) })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		n := len(b.sources)
		close(fail)
		time.Sleep(2 * minBackoff)
		synctest.Wait()
		if len(b.sources) == n {
			t.Error("it is not replaced yet")
		}
		b.end(nil)
	})
}

// A reader that fails is read again, with backoff.
func TestAReaderThatFailsIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"))
		b.begin()
		const failures = 5
		b.readers[0].fail(failures)
		began := time.Now()
		var took time.Duration
		b.set(func() {
			b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
				took = time.Since(began)
				return 0, nil
			}
		})
		b.write("e", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if least := minBackoff / 2 * (1<<failures - 1); took < least || took > 2*least {
			t.Errorf("delivered after %s, want %s to %s", took, least, 2*least)
		}
		b.end(nil)
	})
}

// A destination can answer with anything, and it is in the status and in the log.
func TestAnErrorIsQuotedInPart(t *testing.T) {
	for _, text := range []string{"short", "\xff", strings.Repeat("ü", 10_000), "a" + strings.Repeat("ü", 10_000), strings.Repeat("\xff", 10_000)} {
		got := bounded(errors.New(text)).Error()
		if len(got) > maxErrorText+10 || !utf8.ValidString(got) || got == "" {
			t.Errorf("%.10q of %d bytes is %d bytes", text, len(text), len(got))
		}
	}
}

// The second of two requests is pending for as long as its own version.
func TestTheLagIsThatOfTheOldestVersionThatIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		gate := make(chan struct{})
		b.sends["a"] = func(ctx context.Context, batch []receiver.Record) (int, error) {
			if batch[0].Event.UID != "second" {
				<-gate
				return 0, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		b.apply(named("a"))
		b.begin()
		b.write("before", 1)
		for _, uid := range []string{"first", "second"} {
			b.history.write(uid).Message = strings.Repeat("m", maxRequestBytes)
			time.Sleep(2 * time.Second)
		}
		close(gate)
		if s := b.status("a"); s.Pending != 1 || s.Lag != 2*time.Second {
			t.Errorf("%+v, want a lag of 2s", s)
		}
		b.end(nil)
	})
}

// Two restores of etcd that a receiver notices as one are two epochs: another one must not seem to be
// stored already.
func TestAnEpochIsStoredBeforeWhatIsDeliveredInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var gate chan struct{}
		var epochs []int64 // that are stored when a request is sent
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			text, _ := b.store.get("a")
			e, err := decodeEntry(text)
			if err != nil {
				t.Error(err)
			}
			epochs = append(epochs, e.Epoch)
			<-gate
			return 0, nil
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		gate = make(chan struct{})
		b.write("kept", 1)
		b.write("lost", 1)
		b.history.restore(101)
		b.history.restore(101)
		close(gate)
		time.Sleep(time.Minute)
		b.history.restore(101)
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := epochs[len(epochs)-1]; len(epochs) != 3 || last != 3 {
			t.Errorf("requests were sent with the epochs %d, want the last one with 3", epochs)
		}
		b.end(nil)
	})
}

// It would begin anew at each reload, and be counted as a restore each time.
func TestARestoreThatAnotherReceiverHasNoticedIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.history.epoch = 2
		b.store.set("a", entry{Epoch: 1, ResourceVersion: "150"}.encode())
		b.store.set("b", entry{Epoch: 2, ResourceVersion: "100"}.encode())
		b.sends["a"] = func(ctx context.Context, _ []receiver.Record) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		b.write("e", 1)
		b.apply(named("a"), named("b"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		wantStored(t, b.store, "a", at(2, ""))
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(7))}, named("b"))
		synctest.Wait()
		if n := b.account("a").restores; n != 1 {
			t.Errorf("%d restores", n)
		}
		b.end(nil)
	})
}

// Deletions, and lists of nothing, move the cursor. One that they did not move would soon be compacted.
func TestABatchWithoutEntriesMovesTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(v1alpha1.Receiver{Name: "a", From: v1alpha1.FromOldest})
		b.begin()
		time.Sleep(2 * cursorInterval)
		wantStored(t, b.store, "a", at(0, "100"))
		b.end(nil)
	})
}
