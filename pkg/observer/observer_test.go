package observer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// run runs an Observer in a bubble until end is called.
func run(t *testing.T, opts Options) (o *Observer, end func()) {
	t.Helper()
	opts.MaxBytes = MinMaxBytes
	return runWith(t, opts, defaultSizes)
}

func runWith(t *testing.T, opts Options, sizes sizes) (o *Observer, end func()) {
	t.Helper()
	o, err := newObserver(opts, sizes)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := o.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return o, func() {
		cancel()
		<-done
		synctest.Wait()
		if o.metrics.current.Load() == o {
			t.Error("the metrics keep the buffer of an observer that has ended")
		}
	}
}

// next returns the next batch, which must be there at once.
func next(t *testing.T, r *Reader, limit int) Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	b, err := r.Next(ctx, limit)
	if err != nil {
		t.Fatalf("there is no batch: %v", err)
	}
	return b
}

func wantNothing(t *testing.T, r *Reader, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if b, err := r.Next(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("within %s: %+v, %v; want nothing", within, b, err)
	}
}

// A reader that stops must not stop the others, nor grow the buffer beyond its limit.
func TestAReaderThatStopsCostsTheOthersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		const limit = 200_000
		o, end := runWith(t, Options{Source: s, MaxBytes: limit}, sizes{blockVersions: 32, blockBytes: 1 << 20, fetchBytes: 16 << 20})
		defer end()
		stopped, quick := o.Reader(Start{}), o.Reader(Start{})
		defer stopped.Close()
		defer quick.Close()
		synctest.Wait()
		next(t, stopped, 1)
		next(t, quick, 1)
		n, superseded := 0, int64(0)
		for ; o.log.buffer.first == 0; n++ {
			s.put(fmt.Sprint("event-", n%200))
			synctest.Wait()
			if b := next(t, quick, 10); len(b.Entries) != 1 || b.Superseded != 0 {
				t.Fatalf("version %d: %+v", n, b)
			}
			if at := o.log.buffer.bytes(); at > limit {
				t.Fatalf("the buffer has %d bytes", at)
			}
		}
		wantNone(t, "changes that the apiserver keeps", s.unread())
		time.Sleep(time.Hour)
		if s := stopped.Status(); s.Pending != int64(n) || s.OldestPending != time.Hour {
			t.Errorf("%+v, want %d pending for an hour", s, n)
		}
		if got := o.oldestUnread(); got != time.Hour {
			t.Errorf("the oldest that is not read is %s old", got)
		}
		// It reads all of it: what has left the buffer from the apiserver, the rest from the buffer.
		for got := 0; got < n; {
			b := next(t, stopped, 1000)
			superseded += b.Superseded
			for _, e := range b.Entries {
				if got++; e.Event.ResourceVersion != fmt.Sprint(got+1) {
					t.Fatalf("version %d is %s", got, e.ID())
				}
			}
		}
		if superseded == 0 || testutil.ToFloat64(o.metrics.rereads) != 1 {
			t.Errorf("superseded %d, by one watch of its own; %v watches", superseded, testutil.ToFloat64(o.metrics.rereads))
		}
		if s := stopped.Status(); s.Pending != 0 || s.OldestPending != 0 || s.Observed != int64(n)+superseded {
			t.Errorf("%+v, want observed: %d + %d", s, n, superseded)
		}
		if got := o.oldestUnread(); got != 0 {
			t.Errorf("all is read, and the oldest that is not is %s old", got)
		}
	})
}

// A quiet cluster compacts what the watch has read last. Nothing was missed.
func TestACompactionInAQuietClusterIsNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("before")
		o, end := run(t, Options{Source: s})
		defer end()
		r := o.Reader(Start{Oldest: true})
		defer r.Close()
		time.Sleep(time.Minute)
		if b := next(t, r, 10); len(b.Entries) != 1 || b.Cursor.ResourceVersion != "2" {
			t.Fatalf("%+v", b)
		}
		for range 3 {
			s.other(100)
			s.compact()
			s.breakWatches()
			time.Sleep(time.Minute)
			if b := next(t, r, 10); b.Gap || b.Superseded > 0 || len(b.Entries) > 0 || b.Cursor == (Cursor{}) {
				t.Errorf("%+v, want a cursor", b)
			}
		}
		s.put("after")
		synctest.Wait()
		if b := next(t, r, 10); b.Gap || len(b.Entries) != 1 {
			t.Errorf("%+v, want an entry", b)
		}
		if s := o.Status(); s.Err != nil || !s.Connected {
			t.Errorf("%+v, want no error", s)
		}
	})
}

// Deletions are no entries, but a cursor that they did not move would soon be compacted.
func TestDeletionsMoveTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		o, end := run(t, Options{Source: s})
		defer end()
		r := o.Reader(Start{})
		defer r.Close()
		synctest.Wait()
		next(t, r, 10)
		s.put("a")
		synctest.Wait()
		next(t, r, 10)
		s.remove("a")
		wantNothing(t, r, cursorInterval-time.Second)
		time.Sleep(time.Second)
		if b := next(t, r, 10); len(b.Entries) != 0 || b.Cursor.ResourceVersion != "3" {
			t.Errorf("%+v, want the cursor 3", b)
		}
		wantNothing(t, r, time.Hour)
	})
}

// restorable runs a test with a reader that has read all of a store with an Event, "kept", of which another, "lost", is
// 100 revisions later.
func restorable(t *testing.T, test func(t *testing.T, s *store, o *Observer, first *Reader)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("kept")
		o, end := run(t, Options{Source: s})
		defer end()
		s.other(100)
		first := o.Reader(Start{})
		defer first.Close()
		synctest.Wait()
		next(t, first, 10)
		s.put("lost")
		time.Sleep(time.Minute)
		next(t, first, 10)
		test(t, s, o, first)
	})
}

// The shared watch can be silent after a restore, and have more of the old history to send.
func TestARestoreThatAReaderNoticesFirst(t *testing.T) {
	restorable(t, func(t *testing.T, s *store, o *Observer, first *Reader) {
		s.restoreUnnoticed(50)
		before := o.log.point()
		second := o.Reader(Start{Oldest: true})
		defer second.Close()
		for _, r := range []*Reader{second, first} {
			var b Batch
			for !b.Restored {
				b = next(t, r, 10)
			}
			if b = next(t, r, 10); len(b.Entries) != 1 || b.Entries[0].Event.Name != "kept" || b.Cursor.Epoch != 1 {
				t.Errorf("%+v, want what was kept", b)
			}
		}
		old := usual(1)
		if o.log.add(change{"1000", old.Event}, old, before.epoch) || o.log.point().position == "1000" {
			t.Error("a version of the old history was added to the new one")
		}
		s.put("new")
		time.Sleep(time.Minute)
		if b := next(t, first, 10); len(b.Entries) != 1 || b.Entries[0].Event.Name != "new" {
			t.Errorf("%+v, want what is new", b)
		}
	})
}

// A restored history that is already longer than the old one was is noticed since the watch goes back.
func TestAWatchThatGoesBackIsARestore(t *testing.T) {
	restorable(t, func(t *testing.T, s *store, o *Observer, r *Reader) {
		s.rewind(50)
		const others = 100
		for i := range others {
			s.put(fmt.Sprint("new-", i))
		}
		var b Batch
		for !b.Restored {
			b = next(t, r, 10)
		}
		got := make(map[string]bool)
		for len(got) < others+1 {
			for _, e := range next(t, r, 1000).Entries {
				got[e.Event.Name] = true
			}
		}
		if !got["kept"] || got["lost"] || testutil.ToFloat64(o.metrics.restores) != 1 {
			t.Errorf("%v restores, %v", testutil.ToFloat64(o.metrics.restores), got)
		}
	})
}

// So does a watch of its own that a reader has for what has left the buffer.
func TestAReadersOwnWatchThatGoesBackIsARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for _, name := range []string{"first", "second", "third"} {
			s.put(name)
		}
		sent := watch.NewFakeWithChanSize(2, false)
		sent.Add(s.history[1].event.DeepCopy())
		sent.Add(s.history[0].event.DeepCopy())
		o, end := run(t, Options{Source: ownWatch{s, sent}})
		defer end()
		synctest.Wait()
		r := o.Reader(Start{Cursor: Cursor{ResourceVersion: "1"}})
		defer r.Close()
		for !next(t, r, 10).Restored {
		}
		if n := testutil.ToFloat64(o.metrics.restores); n != 1 {
			t.Errorf("%v restores", n)
		}
	})
}

// ownWatch is a store with another watch from its beginning.
type ownWatch struct {
	*store
	watch watch.Interface
}

func (o ownWatch) Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error) {
	if rv == "1" {
		return o.watch, nil
	}
	return o.store.Watch(ctx, rv, timeout)
}

// A bookmark may have the resourceVersion of what came before it.
func TestOnlyALowerResourceVersionGoesBack(t *testing.T) {
	restorable(t, func(t *testing.T, _ *store, o *Observer, _ *Reader) {
		at := o.log.point().position
		for _, rv := range []string{at, at + "0"} {
			if o.wentBack(t.Context(), rv, at) {
				t.Errorf("%s after %s is a restore", rv, at)
			}
		}
	})
}

// Whatever the apiserver answers, it is asked again, but not too often.
func TestFailuresAreRetriedForEver(t *testing.T) {
	for name, test := range map[string]struct {
		err        error
		least, max int // of requests in an hour
		reason     string
	}{
		"a right was taken away": {status(403, 0), 100, 400, reasonForbidden},
		"the token is not valid": {status(401, 0), 100, 400, reasonForbidden},
		"the server fails":       {status(500, 0), 100, 400, reasonFailed},
		"it asks to wait":        {status(429, 60), 50, 62, reasonFailed},
		"it asks to wait long":   {status(503, 1e6), 12, 13, reasonFailed},
		"no response":            {errHang, 30, 60, reasonFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				var sent atomic.Int64
				var healthy atomic.Bool
				s.fault = func() error {
					if sent.Add(1); healthy.Load() {
						return nil
					}
					return test.err
				}
				registry := prometheus.NewPedanticRegistry()
				metrics, err := NewMetrics(registry)
				if err != nil {
					t.Fatal(err)
				}
				o, end := run(t, Options{Source: s, Metrics: metrics})
				defer end()
				r := o.Reader(Start{})
				defer r.Close()
				time.Sleep(time.Hour)
				if requests := int(sent.Load()); requests < test.least || requests > test.max {
					t.Errorf("%d requests in an hour, want %d to %d", requests, test.least, test.max)
				}
				if got := o.Status(); got.Err == nil || got.Connected {
					t.Errorf("%+v, want an error", got)
				}
				if n := testutil.ToFloat64(o.metrics.restarts.WithLabelValues(test.reason)); n < float64(test.least) {
					t.Errorf("%v restarts because of %s", n, test.reason)
				}
				healthy.Store(true)
				time.Sleep(maxRetryAfter + listTimeout)
				if got := o.Status(); !got.Connected {
					t.Errorf("%+v, want to be connected", got)
				}
				if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
					t.Error(problems, err)
				}
			})
		})
	}
}

// A watch that ends at once is opened again with backoff, one that is silent before long.
func TestWatchesThatEndAtOnceOrNever(t *testing.T) {
	for name, test := range map[string]struct {
		open       func() watch.Interface
		least, max float64 // of restarts in an hour
	}{
		"at once": {closedWatch, 100, 400},
		"never":   {silentWatch, 5, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, end := run(t, Options{Source: &oddWatches{newStore(), test.open}})
				defer end()
				time.Sleep(time.Hour)
				n := testutil.ToFloat64(o.metrics.restarts.WithLabelValues(reasonEnded)) + testutil.ToFloat64(o.metrics.restarts.WithLabelValues(reasonFailed))
				if n < test.least || n > test.max {
					t.Errorf("%v restarts in an hour, want %v to %v", n, test.least, test.max)
				}
			})
		})
	}
}

type oddWatches struct {
	*store
	open func() watch.Interface
}

func (o *oddWatches) Watch(context.Context, string, time.Duration) (watch.Interface, error) {
	return o.open(), nil
}

func closedWatch() watch.Interface {
	w := watch.NewFake()
	w.Stop()
	return w
}

func silentWatch() watch.Interface { return watch.NewFake() }

// A Source that ignores its context must not keep Run or Next, nor take more than a few goroutines.
func TestASourceThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckSource{release: make(chan struct{})}
		o, end := run(t, Options{Source: s})
		r := o.Reader(Start{Oldest: true})
		time.Sleep(24 * time.Hour)
		if n := s.calls.Load(); n != maxCalls {
			t.Errorf("%d calls, want %d", n, maxCalls)
		}
		done := make(chan error)
		go func() {
			_, err := r.Next(t.Context(), 10)
			done <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Next: %v, want ErrClosed", err)
		}
		end()
		close(s.release)
	})
}

type stuckSource struct {
	release chan struct{}
	calls   atomic.Int64
}

func (s *stuckSource) List(context.Context, int64, string) (*corev1.EventList, error) {
	s.calls.Add(1)
	<-s.release
	return nil, errors.New("released")
}

func (s *stuckSource) Watch(context.Context, string, time.Duration) (watch.Interface, error) {
	return nil, errors.New("not reached")
}

// The current resourceVersion is read before a watch: by its end, it can be older than what was sent.
func TestAGapDoesNotMoveTheWatchBack(t *testing.T) {
	l := newSharedLog(Cursor{}, MinMaxBytes, defaultSizes, newCodecForTest(t))
	l.connected("3")
	at := l.point()
	l.add(change{"5", nil}, Version{}, 0)
	l.cut("4", at)
	if p := l.point().position; p != "5" {
		t.Errorf("the position is %s, want 5", p)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Options)
		want  string
	}{
		"no source":       {func(o *Options) { o.Source = nil }, "source"},
		"a small buffer":  {func(o *Options) { o.MaxBytes = MinMaxBytes - 1 }, "buffer"},
		"a wrong version": {func(o *Options) { o.Start.ResourceVersion = "012" }, `"012"`},
	} {
		opts := Options{Source: &stuckSource{}}
		if _, err := New(opts); err != nil {
			t.Fatal(err)
		}
		test.spoil(&opts)
		if _, err := New(opts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
