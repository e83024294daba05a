package observer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests overlap, and so their answers come in any order.
func TestALateAnswerIsNoRestore(t *testing.T) {
	l := newSharedLog(Cursor{}, MinMaxBytes, defaultSizes, newCodecForTest(t))
	l.connected("10")
	before := l.point()
	for _, rv := range []string{"13", "11"} {
		if restored, ok := l.answered(rv, before); restored || !ok {
			t.Errorf("answer %s: restored %t, ok %t", rv, restored, ok)
		}
	}
	if seen := l.point().seen; seen != "13" {
		t.Errorf("the highest resourceVersion is %s, want 13", seen)
	}
	before = l.point()
	if restored, ok := l.answered("5", before); !restored || ok {
		t.Error("no restore")
	}
	if restored, ok := l.answered("4", before); restored || ok || l.point().epoch != 1 {
		t.Errorf("an answer from before the restore: restored %t, ok %t", restored, ok)
	}
}

// A buffer that is kept full is memory for nothing.
func TestWhatEveryReaderHasReturnedLeavesTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		sizes := sizes{blockVersions: 4, blockBytes: 1 << 20, fetchBytes: 16 << 20, page: 500}
		o, end := runWith(t, Options{Source: s, MaxBytes: MinMaxBytes}, sizes)
		defer end()
		slow, quick := o.Reader(Start{}), o.Reader(Start{})
		defer slow.Close()
		defer quick.Close()
		synctest.Wait()
		next(t, slow, 1)
		next(t, quick, 1)
		write := func() {
			s.put("event")
			synctest.Wait()
			next(t, quick, 1)
		}
		for range 100 {
			write()
		}
		if n := o.log.buffer.next - o.log.buffer.first; n != 100 {
			t.Errorf("%d versions are buffered, want 100 for the slow reader", n)
		}
		slow.Close()
		for range 2 * sizes.blockVersions {
			write()
		}
		if n := o.log.buffer.next - o.log.buffer.first; n > int64(2*sizes.blockVersions) {
			t.Errorf("%d versions are buffered for nobody", n)
		}
	})
}

// Who may create Events can store large ones.
func TestABatchIsBoundedInBytes(t *testing.T) {
	large := func(v Version) Version {
		v.Event.Message = strings.Repeat("m", 1<<20)
		return v
	}
	for name, sealed := range map[string]bool{"in the head": false, "in blocks": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, err := New(Options{Source: newStore()})
				if err != nil {
					t.Fatal(err)
				}
				o.log.connected("1")
				r := o.Reader(Start{})
				defer r.Close()
				next(t, r, 1)
				for i := range 20 {
					v := large(usual(i))
					o.log.add(change{v.Event.ResourceVersion, v.Event}, v, 0)
					if !sealed {
						continue
					}
					if err := o.log.compact(); err != nil {
						t.Fatal(err)
					}
				}
				wantBounded(t, next(t, r, 1000))
			})
		})
	}
	t.Run("of a list", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			for i := range 14 {
				name := fmt.Sprint("event-", i)
				s.put(name)
				large(Version{Event: s.current[name]})
			}
			o, end := run(t, Options{Source: s})
			defer end()
			r := o.Reader(Start{Oldest: true})
			defer r.Close()
			synctest.Wait()
			wantBounded(t, next(t, r, 1000))
		})
	})
}

func wantBounded(t *testing.T, b Batch) {
	t.Helper()
	bytes := int64(0)
	for _, e := range b.Entries {
		bytes += sizeOf(e.Version)
	}
	if bytes < batchBytes || bytes > batchBytes+2<<20 {
		t.Errorf("a batch of %d Events has %d bytes, want about %d", len(b.Entries), bytes, batchBytes)
	}
}

// A new term begins before the observer of the former one has ended.
func TestTheGaugesAreThoseOfTheLatestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := NewMetrics(prometheus.NewPedanticRegistry())
		if err != nil {
			t.Fatal(err)
		}
		_, endFirst := run(t, Options{Source: newStore(), Metrics: metrics})
		second, endSecond := run(t, Options{Source: newStore(), Metrics: metrics})
		endFirst()
		if metrics.current.Load() != second {
			t.Error("the gauges of the second one are gone")
		}
		endSecond()
	})
}

// The last list was before the point that etcd is restored to, and the watch has passed it.
func TestARestoreToAPointThatOnlyTheWatchHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		o, end := run(t, Options{Source: s})
		defer end()
		r := o.Reader(Start{})
		defer r.Close()
		synctest.Wait()
		next(t, r, 1)
		for range 10 {
			s.put("event")
		}
		synctest.Wait()
		next(t, r, 10)
		s.restore(5)
		time.Sleep(time.Minute)
		if b := next(t, r, 10); !b.Restored || o.Status().Position.Epoch != 1 {
			t.Errorf("%+v, want a restore", b)
		}
	})
}

// The cursor of a receiver that was paused may be of a history from before a restore.
func TestACursorThatTheApiserverNeverHadIsARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("kept")
		o, end := run(t, Options{Source: s})
		defer end()
		synctest.Wait()
		r := o.Reader(Start{Cursor: Cursor{ResourceVersion: "100"}})
		defer r.Close()
		time.Sleep(time.Second)
		if b := next(t, r, 10); !b.Restored {
			t.Errorf("%+v, want a restore", b)
		}
		if b := next(t, r, 10); len(b.Entries) != 1 || b.Entries[0].Event.Name != "kept" || b.Cursor.Epoch != 1 {
			t.Errorf("%+v, want what is stored", b)
		}
	})
}

// Another process has noticed restores that this one has not: all readers follow.
func TestACursorOfALaterEpochIsThatOfAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("kept")
		o, end := run(t, Options{Source: s})
		defer end()
		first := o.Reader(Start{})
		defer first.Close()
		synctest.Wait()
		next(t, first, 10)
		second := o.Reader(Start{Cursor: Cursor{Epoch: 3, ResourceVersion: "2"}})
		defer second.Close()
		time.Sleep(time.Second)
		s.put("new")
		synctest.Wait()
		if b := next(t, second, 10); len(b.Entries) != 1 || b.Cursor != (Cursor{Epoch: 3, ResourceVersion: "3"}) {
			t.Errorf("%+v, want the new version", b)
		}
		if b := next(t, first, 10); !b.Restored {
			t.Errorf("%+v, want a restore", b)
		}
		if b := next(t, first, 10); len(b.Entries) != 2 || b.Cursor.Epoch != 3 {
			t.Errorf("%+v, want everything that is stored", b)
		}
	})
}
