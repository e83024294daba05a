package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/receiver"
)

// A process is killed right after the first delivery to a new receiver. The next one continues
// there, and not at what is stored when it starts.
func TestANewReceiverSkipsNothingAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.write("before", 1)
		ctx, killed := context.WithCancel(t.Context())
		b.client.before = func(context.Context) error {
			time.Sleep(time.Second) // longer than the way to the receiver
			return ctx.Err()
		}
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			if ctx.Err() == nil {
				killed()
			}
			return 0, ctx.Err()
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(2500 * time.Millisecond) // it has a starting point, which is not stored yet
		want := b.write("e", 3)
		time.Sleep(10 * time.Second)
		if ctx.Err() == nil {
			t.Fatal("nothing was sent")
		}
		b.end(nil)
		b.set(func() { b.sends, b.client.before = nil, nil })
		b.renew()
		b.apply(named("a"))
		b.begin()
		if got := b.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		b.end(nil)
	})
}

// Before the cursors could be read, nothing is sent. While they cannot be written, a new receiver
// waits, and the others do not. A call that never returns is one goroutine.
func TestDeliveryNeedsTheCursorsOnlyAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.write("before", 1)
		calls, release := 0, make(chan struct{})
		hang := func(context.Context) error {
			b.mu.Lock()
			calls++
			until := release
			b.mu.Unlock()
			<-until
			return nil
		}
		b.client.before = hang
		old := v1alpha1.Receiver{Name: "old", From: v1alpha1.FromOldest}
		b.apply(old)
		b.begin()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered("old"); len(got) > 0 || calls != 1 || testutil.ToFloat64(b.metrics.readsFailed) == 0 {
			t.Errorf("got %v after %d calls", got, calls)
		}
		close(release)
		b.set(func() { b.client.before = nil })
		time.Sleep(time.Minute)
		b.set(func() { release = make(chan struct{}) })
		b.set(func() { b.client.before = hang })
		b.apply(old, named("new"))
		synctest.Wait()
		want := b.write("e", 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.delivered("old"); len(got) != 4 || len(b.delivered("new")) > 0 || calls != 2 {
			t.Errorf("got %v after %d calls", got, calls)
		}
		if s := b.status("new"); s.State != StateStarting {
			t.Errorf("%+v", s)
		}
		close(release)
		b.set(func() { b.client.before = nil })
		time.Sleep(time.Minute)
		if got := b.delivered("new"); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		b.end(nil)
	})
}

func TestTheEndOfATermStoresTheCursorsUnlessTheLeaseIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		cause error
		leads bool
		want  bool
	}{
		"handover":          {errors.New("handover"), true, true},
		"no longer leading": {errors.New("handover"), false, false},
		"lost":              {fmt.Errorf("%w: by another", election.ErrLeaseLost), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leads atomic.Bool
				leads.Store(true)
				b := newBench(t, func(o *Options) { o.Leading = leads.Load })
				b.apply(named("a"))
				b.begin()
				b.write("e", 1)
				time.Sleep(3 * cursorInterval)
				b.write("e", 1)
				time.Sleep(cursorInterval / 2)
				last := b.write("e", 1)[0]
				leads.Store(test.leads)
				b.end(test.cause)
				stored, _ := b.store.get("a")
				if got := strings.Contains(stored, strings.TrimPrefix(last, "e/")); got != test.want {
					t.Errorf("stored is %s, the last one is %s", stored, last)
				}
			})
		})
	}
}

// The apiserver hangs at the end of a term. A handover may not wait for it.
func TestAHandoverIsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"), named("b"))
		b.begin()
		release := make(chan struct{})
		hang := func(context.Context, []receiver.Record) (int, error) {
			<-release
			return 0, nil
		}
		b.set(func() {
			b.client.before = func(context.Context) error {
				<-release
				return errors.New("too late")
			}
			b.sends["a"], b.sends["b"] = hang, hang
		})
		b.write("e", 3)
		if took := b.end(nil); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
		close(release)
	})
}

// A process that no longer leads, and whose context has yet to end, sends nothing.
func TestOnlyTheLeaderSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads atomic.Bool
		leads.Store(true)
		b := newBench(t, func(o *Options) { o.Leading = leads.Load })
		b.apply(named("a"))
		b.begin()
		leads.Store(false)
		b.write("e", 3)
		time.Sleep(time.Minute)
		writes := b.store.countWrites()
		if got := b.delivered("a"); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		leads.Store(true)
		time.Sleep(time.Minute)
		if s := b.status("a"); s.Delivered != 3 || b.store.countWrites() == writes {
			t.Errorf("%+v", s)
		}
		b.end(nil)
	})
}

// Nor does it store what it has delivered before.
func TestOnlyTheLeaderStoresCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads atomic.Bool
		leads.Store(true)
		b := newBench(t, func(o *Options) { o.Leading = leads.Load })
		b.apply(named("a"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		b.write("e", 1)
		last := b.write("e", 1)[0] // within an interval of the write before
		leads.Store(false)
		writes := b.store.countWrites()
		time.Sleep(time.Minute)
		if n := b.store.countWrites(); n != writes {
			t.Errorf("%d writes by a process that does not lead", n-writes)
		}
		leads.Store(true)
		time.Sleep(2 * cursorInterval)
		wantStored(t, b.store, "a", at(0, strings.TrimPrefix(last, "e/")))
		b.end(nil)
	})
}

// The writes of many deliveries to several receivers are one per interval.
func TestCursorsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.apply(named("a"), named("b"), named("c"))
		b.begin()
		for range 1000 {
			b.history.write("e")
			time.Sleep(10 * time.Millisecond)
		}
		if b.store.countWrites() > 6 {
			t.Errorf("%d writes in 10 s", b.store.countWrites())
		}
		time.Sleep(cursorInterval)
		writes := b.store.countWrites()
		time.Sleep(time.Hour)
		if b.store.countWrites() != writes {
			t.Errorf("%d writes without a change", b.store.countWrites()-writes)
		}
		b.end(nil)
	})
}

// A leader that catches up, and is killed before the interval is over, leaves little of what it has
// delivered to its successor.
func TestCursorsAreWrittenAsOftenAsMuchIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const batchSize = 100
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			time.Sleep(time.Millisecond)
			return 0, nil
		}
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(batchSize))})
		b.begin()
		time.Sleep(2 * cursorInterval)
		writes := b.store.countWrites()
		all := b.write("e", 10*maxUnwritten)
		time.Sleep(cursorInterval / 2)
		if n := len(b.delivered("a")); n != len(all) {
			t.Fatalf("%d of %d are delivered", n, len(all))
		}
		if n := b.store.countWrites() - writes; n < 9 || n > 11 {
			t.Errorf("%d writes for %d versions", n, len(all))
		}
		b.end(nil)
	})
}
