package sink

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// Each kind of occurrence needs one request for each repeat, however it is recalled.
func TestRepeatOfARememberedSeriesIsOneRequest(t *testing.T) {
	for name, test := range map[string]struct {
		kinds []change
		of    func(round int64) change
	}{
		"classic":                {[]change{normal}, nil},
		"new-style":              {[]change{newStyle}, nil},
		"of a client":            {[]change{normal, by("jane")}, func(round int64) change { return byClient("web-0.17", round) }},
		"of many clients":        {[]change{normal, by("jane")}, func(round int64) change { return byClient(string(rune('a'+round)), 1) }},
		"of who may only create": {[]change{by("jane"), createOnly}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			const series, rounds = 200, 20
			f := &fake{}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				for round := range int64(rounds) {
					changes := test.kinds
					if test.of != nil {
						changes = append(changes[:len(changes):len(changes)], test.of(round+1))
					}
					b.recordEach(series, changes...)
					b.flush()
				}
				b.wantEnds(ends{written: series * rounds})
				if n := f.sent(); n != series*rounds || f.verbs[apiclient.VerbCreate] != series {
					t.Errorf("%d requests for %d occurrences: %v", n, series*rounds, f.verbs)
				}
				if counted := f.server.Counted(); counted != series*rounds {
					t.Errorf("%d are counted, want %d", counted, series*rounds)
				}
			})
		})
	}
}

func createOnly(o *occurrence.Occurrence) { o.CreateOnly = true }

// A process that has forgotten series, or has just started, reads before it creates where Events
// exist: two requests each in place of three. That is so in each namespace by itself.
func TestReadComesFirstWhereEventsExist(t *testing.T) {
	const series = 100
	const wrong = 6 // first requests until the estimate has changed: the others weigh (7/8)^6
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.recordEach(series)
		b.flush()
		next := start(t.Context(), t, f, unlimited())
		defer next.closeWithin(0)
		requests := func(record func()) int {
			before := f.sent()
			record()
			next.flush()
			return f.sent() - before
		}
		known := requests(func() {
			for i := range series {
				next.record(i)
				synctest.Wait()
			}
		})
		if known != 2*series+wrong {
			t.Errorf("%d requests for %d Events that exist", known, series)
		}
		if again := requests(func() { next.recordEach(series) }); again != series {
			t.Errorf("%d requests for %d series that are remembered, where others are read first", again, series)
		}
		if n := requests(func() { next.recordEach(series, inNamespace("another")) }); n != series {
			t.Errorf("%d requests for %d new Events of another namespace", n, series)
		}
		fresh := requests(func() {
			for i := range series {
				next.record(series + i)
				synctest.Wait()
			}
		})
		if fresh != series+wrong {
			t.Errorf("%d requests for %d new Events", fresh, series)
		}
		if again := requests(func() { next.recordEach(2 * series) }); again != 2*series {
			t.Errorf("%d requests for %d series that are remembered", again, 2*series)
		}
		if counted := f.server.Counted(); counted != 7*series {
			t.Errorf("%d are counted, want %d", counted, 7*series)
		}
	})
}

// Only the first request of a series that is not remembered tells whether Events exist of which the
// process does not know: not the reads after conflicts with another writer.
func TestConflictsAreNoReasonToReadFirst(t *testing.T) {
	const rounds, series = 20, 10
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		other := start(t.Context(), t, f, unlimited())
		defer other.closeWithin(0)
		for range rounds {
			b.record(0)
			b.flush()
			other.record(0)
			other.flush()
		}
		if reads := f.verbs[apiclient.VerbRead]; reads < rounds {
			t.Fatalf("only %d reads", reads)
		}
		for _, writer := range []*bench{b, other} {
			before := f.sent()
			for i := range series {
				writer.record(100 + i)
				synctest.Wait()
			}
			if writer == b && f.sent()-before != series {
				t.Errorf("%d requests for %d new Events", f.sent()-before, series)
			}
		}
	})
}

// An answer that does not tell whether the Event exists changes no estimate, and there is none of
// namespaces where Events hardly ever exist.
func TestEstimatesAreOfAnswersThatTell(t *testing.T) {
	f, err := newFirstRequests()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		f.answered("known", apiclient.VerbCreate, apiclient.ClassExists)
		f.answered("read", apiclient.VerbGet, apiclient.ClassOK)
	}
	for range 100 {
		for _, class := range []apiclient.Class{apiclient.ClassLost, apiclient.ClassRefused, apiclient.ClassUnreachable, apiclient.ClassRetry} {
			f.answered("known", apiclient.VerbCreate, class)
			f.answered("read", apiclient.VerbRead, class)
		}
	}
	if !f.isRead("known") || !f.isRead("read") {
		t.Errorf("they are created first: %v, %v", f.isRead("known"), f.isRead("read"))
	}
	for range 100 {
		f.answered("known", apiclient.VerbCreate, apiclient.ClassOK)
		f.answered("read", apiclient.VerbRead, apiclient.ClassNotFound)
	}
	if n := f.exist.Len(); n != 0 {
		t.Errorf("%d estimates are kept", n)
	}
	for i := range 2 * maxEstimates {
		f.answered(fmt.Sprint(i), apiclient.VerbCreate, apiclient.ClassExists)
	}
	if n := f.exist.Len(); n != maxEstimates {
		t.Errorf("%d estimates are kept", n)
	}
}

// Where admission has removed annotations since, no Event can be found, and nothing is read.
func TestNothingIsReadFirstWhereAnnotationsAreRemoved(t *testing.T) {
	const series = 20
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.recordEach(series)
		b.flush()
		next := start(t.Context(), t, f, unlimited())
		defer next.closeWithin(0)
		for i := range series { // then Events are read first
			next.record(i)
			synctest.Wait()
		}
		f.server.Strips = true
		next.recordEach(series) // it sees that
		next.flush()
		next.record(series)
		next.flush()
		before := f.sent()
		for i := range series {
			next.record(series + 1 + i)
			synctest.Wait()
		}
		if n := f.sent() - before; n != series {
			t.Errorf("%d requests for %d new Events", n, series)
		}
	})
}

// A repeat of a remembered series is a repeat: it evicts no occurrence of an Event that is yet to be
// stored.
func TestRepeatOfARememberedSeriesEvictsNoFirstOccurrence(t *testing.T) {
	f := &fake{}
	bubble(t, f, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		b.flush()
		b.recordLater(1, time.Hour)
		b.record(0)
		b.flush()
		b.wantEnds(ends{written: 2, occurrence.PendingFull: 1})
		f.wantStored(t, 2, 2)
	})
}

// Two sinks that write the same series, lose answers, forget series and evict what is pending count
// everything once, whatever they remember.
func TestCountsAgreeWhileSeriesAreForgotten(t *testing.T) {
	const series, each, callers = 40, 1500, 4
	f := &fake{}
	f.start()
	defer f.release()
	o := unlimited()
	o.MaxIdleSeries, o.MaxPendingSeries, o.Concurrency = 12, 20, 16
	o.RetryBaseDelay, o.RetryMaxDelay, o.RetryFor = time.Millisecond, 2*time.Millisecond, 50*time.Millisecond
	var sinks []*bench
	var adding sync.WaitGroup
	for range 2 {
		b := start(t.Context(), t, faultyClient{f}, o)
		sinks = append(sinks, b)
		for range callers {
			adding.Go(func() {
				for i := range each {
					b.recordLater(rand.IntN(series), time.Duration(rand.IntN(3))*time.Millisecond, random)
					if i%100 == 0 {
						b.Flush(t.Context())
					}
				}
			})
		}
	}
	adding.Wait()
	var written, uncertain int64
	for _, b := range sinks {
		b.closeWithin(10 * time.Second)
		totals := b.ledger.Totals()
		written += totals.Written()
		uncertain += totals.Outcomes[occurrence.Uncertain]
	}
	t.Logf("%d written, %d uncertain, %v", written, uncertain, f.verbs)
	if counted := f.server.Counted(); written == 0 || counted < written || counted > written+uncertain {
		t.Errorf("%d are counted, want %d to %d", counted, written, written+uncertain)
	}
}

// random chooses the namespace, by the object, the kind of an occurrence, and whether somebody waits for it.
func random(o *occurrence.Occurrence) {
	object := o.Event.InvolvedObject.Name
	last := object[len(object)-1]
	inNamespace(fmt.Sprint("ns-", last%3))(o)
	if last%2 == 0 {
		newStyle(o)
	}
	if rand.IntN(2) == 0 {
		awaited(o)
	}
}
