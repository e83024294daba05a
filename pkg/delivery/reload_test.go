package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

func TestOnlyReceiversThatChangedAreRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("changed"), named("same"), named("removed"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		want := b.write("e", 3)
		b.apply(v1alpha1.Receiver{Name: "changed", BatchSize: new(int32(3))}, named("same"), named("added"))
		synctest.Wait()
		time.Sleep(2 * cursorInterval)
		later := b.write("e", 3)
		for name, test := range map[string]struct {
			got            []string
			opened, closed int
		}{
			"changed": {append(slices.Clone(want), later...), 2, 1},
			"same":    {append(slices.Clone(want), later...), 1, 0},
			"removed": {want, 1, 1},
			"added":   {later, 1, 0},
		} {
			if got := b.delivered(name); !slices.Equal(got, test.got) || b.opened[name] != test.opened || b.closed[name] != test.closed {
				t.Errorf("%s: got %v, opened %d, closed %d times", name, got, b.opened[name], b.closed[name])
			}
		}
		if s := b.Snapshot(); len(s) != 3 || s[0].Name != "added" {
			t.Errorf("the status is %+v", s)
		}
		b.end(nil)
	})
}

// Routes are swapped without a restart, and what they filter is settled.
func TestRoutesApplyToTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"))
		b.begin()
		want := b.write("noise", 1)
		b.set(func() { b.filter = func(_ string, e *corev1.Event) bool { return e.UID == "noise" } })
		b.apply(named("a"))
		b.history.write("noise")
		want = append(want, b.write("e", 2)...)
		b.write("noise", 4)
		s := b.status("a")
		if got := b.delivered("a"); !slices.Equal(got, want) || b.opened["a"] != 1 || s.Filtered["filter"] != 5 || s.Pending != 0 {
			t.Errorf("got %v: %+v", got, s)
		}
		if s.Cursor.ResourceVersion != fmt.Sprint(b.history.head) {
			t.Errorf("the cursor is %v", s.Cursor)
		}
		b.end(nil)
	})
}

// An Event for which the destination fails blocks those behind it until a route drops it.
func TestRoutesApplyToWhatIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			if slices.ContainsFunc(batch, func(r receiver.Record) bool { return r.Event.UID == "poison" }) {
				return 0, errors.New("500")
			}
			return 0, nil
		}
		b.apply(named("a"), named("b"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		b.write("poison", 1)
		want := b.write("e", 3)
		time.Sleep(time.Minute)
		if s := b.status("a"); s.Pending != 4 {
			t.Fatalf("%+v", s)
		}
		b.set(func() { b.filter = func(_ string, e *corev1.Event) bool { return e.UID == "poison" } })
		b.apply(named("a"), named("b"))
		synctest.Wait()
		if s, got := b.status("a"), b.delivered("a"); !slices.Equal(got, want) || s.Filtered["filter"] != 1 || s.Pending != 0 {
			t.Errorf("got %v, want %v: %+v", got, want, s)
		}
		b.apply(named("a"), named("b"))
		synctest.Wait()
		if b.opened["a"] != 2 || b.opened["b"] != 1 {
			t.Errorf("opened %v times", b.opened)
		}
		b.end(nil)
	})
}

// A paused receiver gets nothing and loses nothing, also one that was added paused.
func TestAPausedReceiverKeepsItsCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		pause := func(paused bool) {
			b.apply(v1alpha1.Receiver{Name: "old", Paused: paused}, v1alpha1.Receiver{Name: "new", Paused: paused})
			synctest.Wait()
			time.Sleep(2 * cursorInterval)
		}
		b.apply(named("old"))
		b.begin()
		b.write("before", 1)
		pause(true)
		want := b.write("e", 3)
		time.Sleep(time.Hour)
		for _, name := range []string{"old", "new"} {
			if s := b.status(name); s.State != StatePaused || s.Pending != 0 || slices.Contains(b.delivered(name), want[0]) {
				t.Errorf("%+v", s)
			}
		}
		if len(b.history.readers) > 0 {
			t.Error("a paused receiver has a reader")
		}
		b.end(nil)
		b.begin()
		pause(false)
		if got := b.delivered("old"); !slices.Equal(got[1:], want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := b.delivered("new"); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		b.end(nil)
	})
}

func TestTheCursorOfARemovedReceiverIsKeptForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.set("foreign", "of somebody else")
		b.apply(named("a"), named("b"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		b.write("e", 3)
		time.Sleep(30 * time.Hour) // it was not used for so long, but known
		b.apply(named("a"))
		synctest.Wait()
		want := b.write("e", 3)
		time.Sleep(unusedTime - time.Minute)
		b.apply(named("a"), v1alpha1.Receiver{Name: "b", Paused: true})
		synctest.Wait()
		time.Sleep(2 * unusedTime) // known again
		want = append(want, b.write("e", 1)...)
		time.Sleep(2 * cursorInterval)
		if _, ok := b.store.get("b"); !ok {
			t.Error("the entry of a paused receiver is removed")
		}
		b.apply(named("a"), named("b"))
		synctest.Wait()
		time.Sleep(2 * cursorInterval)
		if got := b.delivered("b"); !slices.Equal(got[3:], want) {
			t.Errorf("got %v, want %v", got, want)
		}
		b.apply(named("a"))
		time.Sleep(unusedTime / 2)
		b.end(nil)
		b.renew() // another process counts on
		b.apply(named("a"))
		b.begin()
		time.Sleep(unusedTime/2 + time.Minute)
		b.write("e", 1)
		time.Sleep(2 * cursorInterval)
		for key, want := range map[string]bool{"a": true, "b": false, "foreign": true} {
			if _, ok := b.store.get(key); ok != want {
				t.Errorf("key %s is there: %t", key, ok)
			}
		}
		b.end(nil)
	})
}

// The last receiver is removed, so nothing is delivered for as long as there is none.
func TestTheCursorOfTheLastReceiverIsKeptForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			gone time.Duration
			want int // of what is stored meanwhile
		}{{unusedTime - time.Minute, 3}, {unusedTime + time.Minute, 0}} {
			b := newBench(t)
			b.apply(named("a"))
			b.begin()
			time.Sleep(2 * cursorInterval)
			b.write("e", 1)
			b.apply()
			synctest.Wait()
			b.write("e", 3)
			time.Sleep(test.gone)
			b.apply(named("a"))
			time.Sleep(2 * cursorInterval)
			if n := len(b.delivered("a")) - 1; n != test.want {
				t.Errorf("after %s, %d of 3 are delivered", test.gone, n)
			}
			b.end(nil)
		}
	})
}

// etcd is restored from a backup, and the leader is killed before all was delivered again. The
// history has passed the old cursors by then.
func TestARestoredHistoryIsDeliveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		receivers := []v1alpha1.Receiver{named("a"), {Name: "paused"}}
		b.apply(receivers...)
		b.begin()
		time.Sleep(2 * cursorInterval)
		first := b.write("first", 1)
		b.write("second", 20)
		receivers[1].Paused = true
		b.apply(receivers...)
		synctest.Wait()
		time.Sleep(2 * cursorInterval)
		before := b.status("a").Cursor

		dead := errors.New("the process is killed")
		b.set(func() {
			b.client.after = func(context.Context) error { // the epoch is stored
				b.set(func() { b.client.before = func(context.Context) error { return dead } })
				return nil
			}
		})
		b.history.restore(101)
		time.Sleep(time.Minute)
		b.end(nil)
		b.client.before, b.client.after = nil, nil
		b.set(func() { b.got = map[string][]string{} })
		b.write("third", 30)

		b.renew()
		receivers[1].Paused = false
		b.apply(receivers...)
		b.begin()
		time.Sleep(time.Minute)
		want := []string{first[0], fmt.Sprintf("third/%d", b.history.head)}
		for _, name := range []string{"a", "paused"} {
			s := b.status(name)
			if got := b.delivered(name); !slices.Equal(got, want) {
				t.Errorf("%s got %v, want %v", name, got, want)
			}
			if !after(s.Cursor, before) || s.Cursor != (observer.Cursor{Epoch: 1, ResourceVersion: fmt.Sprint(b.history.head)}) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		b.end(nil)
	})
}

func TestASourceThatFailsIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"))
		fail := make(chan struct{})
		b.source = func(s *memorySource) { s.fail, s.err = fail, errors.New("unwell") }
		b.begin()
		want := b.write("e", 3)
		b.set(func() { b.source = nil })
		close(fail)
		synctest.Wait()
		want = append(want, b.write("e", 3)...)
		time.Sleep(time.Minute)
		if got := b.delivered("a"); !slices.Equal(got, want) || len(b.sources) != 2 {
			t.Errorf("got %v from %d sources", got, len(b.sources))
		}
		b.status("a")
		b.end(nil)
	})
}

// A source begins where the receiver that is farthest behind does.
func TestASourceBeginsAtTheLowestCursor(t *testing.T) {
	at := func(epoch int64, rv string) observer.Start {
		return observer.Start{Cursor: observer.Cursor{Epoch: epoch, ResourceVersion: rv}}
	}
	oldest := observer.Start{Oldest: true}
	for name, test := range map[string]struct {
		starts []observer.Start
		want   observer.Start
	}{
		"one":                {[]observer.Start{at(0, "7")}, at(0, "7")},
		"by number":          {[]observer.Start{at(0, "10"), at(0, "9"), at(0, "11")}, at(0, "9")},
		"new ones do not":    {[]observer.Start{at(0, ""), at(0, "9"), at(0, "")}, at(0, "9")},
		"only new ones":      {[]observer.Start{at(3, ""), at(3, "")}, at(3, "")},
		"oldest":             {[]observer.Start{at(0, "9"), oldest}, oldest},
		"oldest of an epoch": {[]observer.Start{oldest, at(2, "9")}, observer.Start{Oldest: true, Cursor: observer.Cursor{Epoch: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lowest(test.starts); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Without receivers, nothing is read. The first one begins a source.
func TestNothingIsObservedWithoutReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.begin()
		if len(b.sources) > 0 || b.store.writes > 0 {
			t.Error("there is a source, or a cursor")
		}
		b.apply(named("a"))
		synctest.Wait()
		want := b.write("e", 1)
		if got := b.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		b.apply()
		synctest.Wait()
		if len(b.history.readers) > 0 {
			t.Error("the reader is still there")
		}
		b.end(nil)
	})
}
