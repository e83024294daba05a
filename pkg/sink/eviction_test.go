package sink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

func warning(o *occurrence.Occurrence) { o.Event.Type = corev1.EventTypeWarning }

// In a namespace that has its share, the counts of Normal Events that are stored
// already make room for others, and nothing makes room for them.
func TestNormalRepeatsMakeRoom(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"series": func(o *Options) { o.MaxPendingSeries = 4 },
		"bytes":  func(o *Options) { o.MaxPendingBytes = 4500 }, // each takes about 1.3 KiB
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{}, limit, func(t *testing.T, b *bench) {
				for i := range 2 {
					b.record(i)
				}
				b.record(2, warning)
				synctest.Wait()
				for i := range 2 {
					b.recordLater(i, time.Hour)
				}
				b.recordLater(2, time.Hour, warning)
				b.recordLater(3, time.Hour)
				wantDropped := func(n int64) {
					t.Helper()
					if got := b.ledger.Totals().Dropped[occurrence.PendingFull]; got != n {
						t.Errorf("%d dropped, want %d", got, n)
					}
				}
				wantDropped(0)
				b.recordLater(4, time.Hour) // takes the place of 1
				wantDropped(1)
				b.recordLater(1, time.Hour) // a repeat, for which nothing makes room
				wantDropped(2)
				b.recordLater(5, time.Hour, warning) // takes the place of 0
				wantDropped(3)
				b.recordLater(6, time.Hour, warning) // nothing is left that makes room
				wantDropped(4)
				if p := b.Pending(); p.Series != 4 || p.Occurrences != 4 {
					t.Errorf("pending %+v", p)
				}
			})
		})
	}
}

// slowPatches takes a while for each patch.
type slowPatches struct{ byNamespace }

func (c slowPatches) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	time.Sleep(time.Second)
	return c.byNamespace.Patch(ctx, api, namespace, name, patch)
}

// fill lets the sink hold no more than it does.
func (b *bench) fill() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options.MaxPendingBytes = b.total.bytes
	return b.total
}

// Where there is no memory left, what takes none is counted all the same, and
// nothing is given up for it.
func TestRepeatThatTakesNothingIsCountedWhenFull(t *testing.T) {
	type change = func(*occurrence.Occurrence)
	plain := func(*occurrence.Occurrence) {}
	said := func(what string) change {
		return func(o *occurrence.Occurrence) { o.Event.Labels = map[string]string{"said": what} }
	}
	by := func(client string, total int64) change {
		return func(o *occurrence.Occurrence) { o.Client, o.Total = client, total }
	}
	awaited := func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) {} }
	awaitedUntilDeferred := func(o *occurrence.Occurrence) {
		awaited(o)
		o.Deferred = func() {}
	}
	for name, test := range map[string]struct {
		stored change
		p      []change
		repeat change
		delay  time.Duration
		taken  bool
	}{
		"the same again":               {plain, []change{plain, plain}, plain, time.Hour, true},
		"the same again, of a Warning": {warning, []change{warning, warning}, warning, time.Hour, true},
		"the same again, sooner":       {plain, []change{plain, plain}, plain, time.Minute, true},
		"the same again, at once":      {plain, []change{plain, plain}, plain, 0, true},
		"something shorter":            {plain, []change{plain, said("this")}, said("it"), time.Hour, true},
		"the next of a client":         {by("c", 1), []change{by("c", 2), by("c", 3)}, by("c", 4), time.Hour, true},
		"awaited until it is deferred": {plain, []change{plain, plain}, awaitedUntilDeferred, time.Hour, true},
		"awaited":                      {plain, []change{plain, plain}, awaited, time.Hour, false},
		"the second one":               {plain, []change{plain}, plain, time.Hour, false},
		"something longer":             {plain, []change{plain, said("it")}, said("this"), time.Hour, false},
		"something more":               {plain, []change{plain, plain}, said("it"), time.Hour, false},
		"of a client after a gap":      {by("c", 1), []change{by("c", 2), by("c", 3)}, by("c", 5), time.Hour, false},
		"of another client":            {by("c", 1), []change{by("c", 2), by("c", 3)}, by("d", 4), time.Hour, false},
		"the first of a client":        {plain, []change{plain, plain}, by("c", 1), time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, slowPatches{}, nil, func(t *testing.T, b *bench) {
				b.record(0, test.stored)
				b.record(1)
				synctest.Wait()
				b.recordLater(1, time.Hour) // a Warning could have its place
				for _, o := range test.p {
					b.recordLater(0, time.Hour, o)
				}
				before := b.fill()
				b.recordLater(0, test.delay, test.repeat)
				after, dropped := b.holds(), b.ledger.Totals().Dropped[occurrence.PendingFull]
				if taken := after.occurrences == before.occurrences+1 && dropped == 0; taken != test.taken || after.bytes > before.bytes {
					t.Errorf("%d dropped, held %+v, and %+v before", dropped, after, before)
				}
			})
		})
	}
}

// A write that is on its way takes nothing further, so what comes after it takes
// memory of its own.
func TestRepeatOfWhatIsBeingWrittenTakesMemory(t *testing.T) {
	c := byNamespace{"ns": func(context.Context) error { time.Sleep(time.Second); return nil }}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.recordLater(0, time.Minute)
		b.recordLater(0, time.Minute)
		pass(time.Minute)
		b.fill()
		b.record(0)
		if got := b.ledger.Totals().Dropped[occurrence.PendingFull]; got != 1 {
			t.Errorf("%d dropped", got)
		}
	})
}

func TestWhatIsInWorkMakesNoRoom(t *testing.T) {
	bubble(t, slowPatches{}, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		b.record(0)
		synctest.Wait() // its patch takes a second
		b.record(1, warning)
		if got := b.ledger.Totals(); got.Dropped[occurrence.PendingFull] != 1 || !b.objects("ns")["pod-0"] {
			t.Errorf("dropped %v, pending about %v", got.Dropped, b.objects("ns"))
		}
	})
}

// A series becomes a repeat when its Event is stored, also if it owes more by then.
func TestNormalRepeatThatWasAddedMeanwhileMakesRoom(t *testing.T) {
	c := scripted(func(_ context.Context, v apiclient.Verb) (*corev1.Event, error) {
		time.Sleep(time.Second)
		if v == apiclient.VerbPatch {
			return nil, apierrors.NewTooManyRequests("later", 60)
		}
		return nil, nil
	})
	bubble(t, c, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Second / 2)
		b.record(0)
		pass(2 * time.Second) // it is created, and the patch waits
		b.record(1, warning)
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Created] != 2 {
			t.Errorf("the Warning is dropped: settled %v", got.Outcomes)
		}
	})
}

// An occurrence evicts of its own flow what costs less to lose than itself, so a
// repeat evicts nothing, and a series that is to wait none that waits.
func TestWhatANormalEvictsOfItsOwnFlow(t *testing.T) {
	said := func(o *occurrence.Occurrence) { o.Event.Labels = map[string]string{"said": "it"} }
	for name, test := range map[string]struct {
		stored bool // what waits and what comes are repeats
		comes  int
		delay  time.Duration
		evicts bool
	}{
		"a new one that is due":   {false, 1, 0, true},
		"a new one that can wait": {false, 1, time.Hour, false},
		"a repeat that is due":    {true, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{}, nil, func(t *testing.T, b *bench) {
				if test.stored {
					b.record(0)
					b.record(1)
					synctest.Wait()
					b.recordLater(1, time.Hour)
				}
				b.recordLater(0, time.Hour)
				b.fill()
				b.recordLater(test.comes, test.delay, said)
				if dropped := b.ledger.Totals().Dropped[occurrence.PendingFull]; dropped != 1 || b.objects("ns")["pod-0"] == test.evicts {
					t.Errorf("%d dropped, pending about %v", dropped, b.objects("ns"))
				}
			})
		})
	}
}

// What was tried may have been written, so nobody is told that it was dropped.
func TestWhatWasTriedIsUncertainWhenItIsEvicted(t *testing.T) {
	c := byNamespace{"ns": func(context.Context) error { return apierrors.NewInternalError(context.DeadlineExceeded) }}
	bubble(t, c, func(o *Options) { o.MaxPendingSeries, o.RetryBaseDelay, o.RetryMaxDelay = 3, time.Hour, time.Hour }, func(t *testing.T, b *bench) {
		for i := range 3 {
			b.record(i)
		}
		synctest.Wait()
		b.record(0, inNamespace("other"))
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Uncertain] != 1 || got.Outcomes[occurrence.Dropped] != 0 {
			t.Errorf("settled %v", got.Outcomes)
		}
		b.stopAtOnce()
	})
}
