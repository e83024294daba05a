package sink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// objects are those that something is pending about.
func (b *bench) objects(namespace string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]bool)
	for _, p := range b.pending {
		if p.counter.Namespace == namespace {
			out[p.counter.Object] = true
		}
	}
	return out
}

// wantFull compares the number of occurrences that are dropped since the sink is full.
func (b *bench) wantFull(n int64) {
	b.t.Helper()
	if got := b.ledger.Totals().Dropped[occurrence.PendingFull]; got != n {
		b.t.Errorf("%d dropped, want %d", got, n)
	}
}

// In a namespace that has its share, the counts of Normal Events that are stored
// already make room for others, and nothing makes room for them.
func TestNormalRepeatsMakeRoom(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"series": func(o *Options) { o.MaxPendingSeries = 4 },
		"bytes":  func(o *Options) { o.MaxPendingBytes = 4500 }, // each takes about 1.3 KiB
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{}, limit, func(t *testing.T, b *bench) {
				b.recordEach(2)
				b.record(2, warning)
				synctest.Wait()
				for i := range 2 {
					b.recordLater(i, time.Hour)
				}
				b.recordLater(2, time.Hour, warning)
				b.recordLater(3, time.Hour)
				b.wantFull(0)
				for i, comes := range []struct {
					series int
					change change
				}{
					{4, normal},  // takes the place of 1
					{1, normal},  // a repeat, for which nothing makes room
					{5, warning}, // takes the place of 0
					{6, warning}, // nothing is left that makes room
				} {
					b.recordLater(comes.series, time.Hour, comes.change)
					b.wantFull(int64(1 + i))
				}
				if p := b.Pending(); p != (Pending{Series: 4, Occurrences: 4}) {
					t.Errorf("pending %+v", p)
				}
			})
		})
	}
}

// slowPatch takes a second for each patch.
func slowPatch(_ context.Context, c *call) error {
	if c.verb == apiclient.VerbPatch {
		time.Sleep(time.Second)
	}
	return nil
}

// fill sets the limit of memory to what is pending.
func (b *bench) fill() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options.MaxPendingBytes = b.total.bytes
	return b.total
}

// Where there is no memory left, an occurrence that needs none is counted all the same, and
// nothing is evicted for it.
func TestRepeatThatTakesNothingIsCountedWhenFull(t *testing.T) {
	two := []change{normal, normal}
	ofClient := []change{byClient("c", 2), byClient("c", 3)}
	for name, test := range map[string]struct {
		stored  change
		pending []change
		repeat  change
		delay   time.Duration
		fits    bool
	}{
		"the same again":               {normal, two, normal, time.Hour, true},
		"the same again, of a Warning": {warning, []change{warning, warning}, warning, time.Hour, true},
		"the same again, sooner":       {normal, two, normal, time.Minute, true},
		"the same again, at once":      {normal, two, normal, 0, true},
		"something shorter":            {normal, []change{normal, labelled("this")}, labelled("it"), time.Hour, true},
		"the next of a client":         {byClient("c", 1), ofClient, byClient("c", 4), time.Hour, true},
		"awaited until it is deferred": {normal, two, acknowledge, time.Hour, true},
		"awaited":                      {normal, two, awaited, time.Hour, false},
		"the second one":               {normal, []change{normal}, normal, time.Hour, false},
		"something longer":             {normal, []change{normal, labelled("it")}, labelled("this"), time.Hour, false},
		"something more":               {normal, two, labelled("it"), time.Hour, false},
		"of a client after a gap":      {byClient("c", 1), ofClient, byClient("c", 5), time.Hour, false},
		"of another client":            {byClient("c", 1), ofClient, byClient("d", 4), time.Hour, false},
		"the first of a client":        {normal, two, byClient("c", 1), time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{answer: slowPatch}, nil, func(t *testing.T, b *bench) {
				b.record(0, test.stored)
				b.record(1)
				synctest.Wait()
				b.recordLater(1, time.Hour) // a Warning could have its place
				for _, o := range test.pending {
					b.recordLater(0, time.Hour, o)
				}
				before := b.fill()
				b.recordLater(0, test.delay, test.repeat)
				after, dropped := b.holds(), b.ledger.Totals().Dropped[occurrence.PendingFull]
				if fits := after.occurrences == before.occurrences+1 && dropped == 0; fits != test.fits || after.bytes > before.bytes {
					t.Errorf("%d dropped, pending %+v, and %+v before", dropped, after, before)
				}
			})
		})
	}
}

// A request in flight includes nothing further, so what comes after it takes
// memory of its own.
func TestRepeatOfWhatIsBeingWrittenTakesMemory(t *testing.T) {
	bubble(t, &fake{takes: time.Second}, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Minute)
		b.recordLater(0, time.Minute)
		pass(time.Minute)
		b.fill()
		b.record(0)
		b.wantFull(1)
	})
}

func TestWhatIsInWorkMakesNoRoom(t *testing.T) {
	bubble(t, &fake{answer: slowPatch}, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		b.record(0)
		synctest.Wait() // its patch takes a second
		b.record(1, warning)
		b.wantFull(1)
		if got := b.objects("ns"); !got["pod-0"] {
			t.Errorf("pending about %v", got)
		}
	})
}

// A series becomes a repeat when its Event is stored, also if more of it is pending by then.
func TestNormalRepeatThatWasAddedMeanwhileMakesRoom(t *testing.T) {
	f := &fake{takes: time.Second, answer: func(_ context.Context, c *call) error {
		if c.verb == apiclient.VerbPatch {
			return apierrors.NewTooManyRequests("later", 60)
		}
		return nil
	}}
	bubble(t, f, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Second / 2)
		b.record(0)
		pass(2 * time.Second) // it is created, and the patch waits
		b.record(1, warning)
		b.flush()
		b.wantEnds(ends{written: 2, occurrence.PendingFull: 1})
		f.wantStored(t, 2, 2)
	})
}

// An occurrence evicts of its own flow what costs less to lose than itself. So a
// repeat evicts nothing, and a deferred series no deferred one.
func TestWhatANormalEvictsOfItsOwnFlow(t *testing.T) {
	for name, test := range map[string]struct {
		stored bool // the pending series and the new occurrence are repeats
		series int  // of the new occurrence
		delay  time.Duration
		evicts bool
	}{
		"a new one that is due":      {false, 1, 0, true},
		"a new one that is deferred": {false, 1, time.Hour, false},
		"a repeat that is due":       {true, 1, 0, false},
		"one that was due":           {false, 1, -time.Hour, true},
		"one of its own series":      {false, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
				if test.stored {
					b.recordEach(2)
					synctest.Wait()
					b.recordLater(1, time.Hour)
				}
				b.recordLater(0, time.Hour)
				b.fill()
				b.recordLater(test.series, test.delay, labelled("it"))
				b.wantFull(1)
				synctest.Wait()
				if got := b.objects("ns"); got["pod-0"] == test.evicts {
					t.Errorf("pending about %v", got)
				}
			})
		})
	}
}

// patient are options with which a retry waits for an hour.
func patient(o *Options) {
	o.MaxPendingSeries, o.RetryBaseDelay, o.RetryMaxDelay = 3, time.Hour, time.Hour
}

// A write that was tried may have taken effect.
func TestWhatWasTriedIsUncertainWhenItIsEvicted(t *testing.T) {
	bubble(t, &fake{answer: in("ns", fail(errNoAnswer))}, patient, func(t *testing.T, b *bench) {
		b.recordEach(3)
		synctest.Wait()
		b.record(0, inNamespace("other"))
		synctest.Wait()
		b.wantEnds(ends{occurrence.Uncertain: 1, written: 1})
	})
}

// So it is evicted after the others.
func TestWhatWasTriedIsEvictedLast(t *testing.T) {
	f := &fake{answer: func(_ context.Context, c *call) error {
		if c.object == "pod-0" {
			return errNoAnswer
		}
		return nil
	}}
	bubble(t, f, patient, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Second, warning)
		b.recordLater(1, time.Hour, warning)
		b.recordLater(2, time.Hour, warning)
		pass(2 * time.Second)
		b.recordLater(0, time.Hour, inNamespace("other"))
		if got := b.objects("ns"); !got["pod-0"] || !got["pod-1"] || got["pod-2"] {
			t.Errorf("%v are left", got)
		}
	})
}

// What a client was told to be written is not evicted as if it had not been, since something was added to it.
func TestAcknowledgedSeriesStaysAcknowledged(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Hour, acknowledge)
		b.recordLater(0, time.Hour)
		b.recordLater(1, time.Hour)
		for series, want := range []bool{true, false} {
			for _, h := range b.pending[b.key(series)].allocations {
				if h.acknowledged != want {
					t.Errorf("series %d is acknowledged: %v, want %v", series, h.acknowledged, want)
				}
			}
		}
	})
}
