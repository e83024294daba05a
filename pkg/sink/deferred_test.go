package sink

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// planned is an occurrence that a user adds at a time.
type planned struct {
	user      string
	at, delay time.Duration
}

// wantWritesOf adds occurrences of one series, and compares the times of the writes.
func wantWritesOf(t *testing.T, takes time.Duration, adds []planned, want []time.Duration) {
	t.Helper()
	f := &fake{takes: takes}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		for _, add := range adds {
			pass(add.at - time.Since(f.began))
			b.recordLater(0, add.delay, by(add.user))
			synctest.Wait()
		}
		f.wantWrites(t, int64(len(adds)), want...)
	})
}

func TestWriteWaitsForItsDueTime(t *testing.T) {
	const s, m = time.Second, time.Minute
	add := func(at, delay time.Duration) planned { return planned{"", at, delay} }
	for name, test := range map[string]struct {
		takes time.Duration
		adds  []planned
		want  []time.Duration
	}{
		"now":                     {0, []planned{add(0, 0)}, []time.Duration{0}},
		"later":                   {0, []planned{add(0, m)}, []time.Duration{m}},
		"with what came before":   {0, []planned{add(0, m), add(10*s, 50*s), add(20*s, 40*s)}, []time.Duration{m}},
		"sooner than decided":     {0, []planned{add(0, 2*m), add(10*s, 20*s)}, []time.Duration{30 * s}},
		"now after all":           {0, []planned{add(0, 2*m), add(10*s, 0)}, []time.Duration{10 * s}},
		"later than decided":      {0, []planned{add(0, m), add(10*s, 2*m)}, []time.Duration{130 * s}},
		"sooner, then later":      {0, []planned{add(0, m), add(s, 2*s), add(2*s, 5*m)}, []time.Duration{302 * s}},
		"put off again and again": {0, []planned{add(0, m), add(30*s, m), add(m, m), add(90*s, m)}, []time.Duration{150 * s}},
		"again, after a write":    {0, []planned{add(0, m), add(70*s, m)}, []time.Duration{m, 130 * s}},
		"less than nothing":       {0, []planned{add(0, -m)}, []time.Duration{0}},
		"in flight":               {5 * s, []planned{add(0, 0), add(s, m)}, []time.Duration{0, 61 * s}},
		"in flight, now":          {5 * s, []planned{add(0, 0), add(s, 0)}, []time.Duration{0, 5 * s}},
		"in flight, replaced":     {5 * s, []planned{add(0, 0), add(s, m), add(2*s, 10*s)}, []time.Duration{0, 12 * s}},
		"in flight, put off":      {5 * s, []planned{add(0, 0), add(s, m), add(2*s, 2*m)}, []time.Duration{0, 122 * s}},
		"in flight until past it": {5 * s, []planned{add(0, 0), add(s, s), add(3*s, 30*s)}, []time.Duration{0, 5 * s}},
	} {
		t.Run(name, func(t *testing.T) { wantWritesOf(t, test.takes, test.adds, test.want) })
	}
}

func TestUserPutsOffTheWriteOfNoOther(t *testing.T) {
	const s, m = time.Second, time.Minute
	for name, test := range map[string]struct {
		takes time.Duration
		adds  []planned
		want  []time.Duration
	}{
		"its own":                             {0, []planned{{"a", 0, m}, {"a", s, 2 * m}}, []time.Duration{121 * s}},
		"another's":                           {0, []planned{{"a", 0, m}, {"b", s, 2 * m}}, []time.Duration{m}},
		"another's, again and again":          {0, []planned{{"a", 0, m}, {"b", s, 2 * m}, {"b", 30 * s, m}, {"b", 59 * s, m}}, []time.Duration{m}},
		"another's, in turn with that":        {0, []planned{{"a", 0, m}, {"b", s, m}, {"a", 2 * s, 2 * m}, {"b", 3 * s, m}}, []time.Duration{m}},
		"another's, which it brought forward": {0, []planned{{"a", 0, m}, {"b", s, 2 * s}, {"b", 2 * s, 5 * m}}, []time.Duration{m}},
		"another's, after a write":            {0, []planned{{"a", 0, s}, {"b", 2 * s, m}, {"a", 3 * s, 20 * s}, {"b", 4 * s, m}}, []time.Duration{s, 23 * s}},
		"its own, after a write of another":   {0, []planned{{"a", 0, s}, {"b", 2 * s, m}, {"b", 3 * s, 2 * m}}, []time.Duration{s, 123 * s}},
		"another's, while that is in flight":  {5 * s, []planned{{"a", 0, 10 * s}, {"b", s, m}, {"b", 12 * s, m}}, []time.Duration{10 * s, 72 * s}},
		"a recorder's":                        {0, []planned{{"", 0, m}, {"b", s, 2 * m}}, []time.Duration{m}},
	} {
		t.Run(name, func(t *testing.T) { wantWritesOf(t, test.takes, test.adds, test.want) })
	}
}

func TestDeferredIsCalledInPlaceOfSettled(t *testing.T) {
	type calls struct {
		deferred, settled int
		settledAfter      time.Duration
	}
	for name, test := range map[string]struct {
		delay    time.Duration
		mayDefer bool
		want     calls
	}{
		"later":                      {time.Minute, true, calls{deferred: 1}},
		"now":                        {0, true, calls{settled: 1}},
		"a caller waits for the end": {time.Minute, false, calls{settled: 1, settledAfter: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				var got calls
				deferred := func() {
					got.deferred++
					b.Pending() // needs the mutex, which must not be held
				}
				b.recordLater(0, test.delay, func(o *occurrence.Occurrence) {
					if test.mayDefer {
						o.Deferred = deferred
					}
					o.Settled = func(occurrence.Settlement) { got.settled, got.settledAfter = got.settled+1, time.Since(f.began) }
				})
				if got.deferred != test.want.deferred {
					t.Errorf("deferred %d times when it was added", got.deferred)
				}
				if f.wantWrites(t, 1, test.delay); got != test.want {
					t.Errorf("called %+v, want %+v", got, test.want)
				}
			})
		})
	}
}

// A storm on one series makes one write when it begins and one when it is due.
func TestStormOnOneSeriesMakesTwoWrites(t *testing.T) {
	const storm = 25_000
	for name, named := range map[string]bool{"anonymous": false, "of many clients": true} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				settled, deferred := 0, 0
				callbacks := func(o *occurrence.Occurrence) {
					o.Settled = func(occurrence.Settlement) { settled++ }
					o.Deferred = func() { deferred++ }
				}
				delay := time.Duration(0)
				for i := range storm {
					client := normal
					if named {
						client = byClient(fmt.Sprint("client-", i), 1)
					}
					b.recordLater(0, delay, client, callbacks)
					if i == 0 {
						synctest.Wait()
					}
					if i%1000 == 999 {
						pass(time.Second)
					}
					delay = 30*time.Second - time.Since(f.began)
				}
				if p := b.Pending(); p.Occurrences != storm-1 || b.entries() != 1 {
					t.Errorf("%+v in %d entries", p, b.entries())
				}
				if bytes, limit := b.holds().bytes, int64(4096+storm*64); bytes > limit {
					t.Errorf("%d bytes are pending, want at most %d", bytes, limit)
				}
				f.wantWrites(t, storm, 0, 30*time.Second)
				if settled != 1 || deferred != storm-1 {
					t.Errorf("%d settled, %d deferred", settled, deferred)
				}
			})
		})
	}
}

func TestWhatIsLeftOfALargeBatchIsDueAtOnce(t *testing.T) {
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		const named = 2*counter.MaxBatch + 10
		for i := range named {
			b.recordLater(0, time.Minute, byClient(fmt.Sprint("client-", i), 1))
		}
		f.wantWrites(t, named, time.Minute, time.Minute, time.Minute)
	})
}

// at is a time, in seconds.
func at(seconds int) time.Time { return time.Unix(int64(seconds), 0) }

func TestDeadlinesAreMergedAndReplaced(t *testing.T) {
	type add struct{ now, delay int } // in seconds
	for name, test := range map[string]struct {
		adds []add
		want deadlines
	}{
		"now":                            {[]add{{0, 0}}, deadlines{{at(0), 1}}},
		"later":                          {[]add{{0, 60}}, deadlines{{at(60), 1}}},
		"sooner than before":             {[]add{{0, 60}, {10, 20}}, deadlines{{at(30), 2}}},
		"later than before":              {[]add{{0, 60}, {10, 90}}, deadlines{{at(100), 2}}},
		"now, though it was to be later": {[]add{{0, 60}, {10, 0}}, deadlines{{at(10), 2}}},
		"after it has passed":            {[]add{{0, 5}, {5, 60}}, deadlines{{at(5), 1}, {at(65), 2}}},
		"sooner, after that":             {[]add{{0, 5}, {5, 60}, {6, 10}}, deadlines{{at(5), 1}, {at(16), 3}}},
		"later, after that":              {[]add{{0, 5}, {5, 60}, {6, 90}}, deadlines{{at(5), 1}, {at(96), 3}}},
		"now, after that":                {[]add{{0, 5}, {5, 60}, {6, 0}}, deadlines{{at(5), 1}, {at(6), 3}}},
		"what has passed stays":          {[]add{{0, 0}, {1, 0}, {2, 60}}, deadlines{{at(0), 2}, {at(62), 3}}},
		"one after the other":            {[]add{{0, 0}, {10, 0}, {11, 0}, {30, 0}}, deadlines{{at(0), 1}, {at(10), 3}, {at(30), 4}}},
		"passed in short order":          {[]add{{0, 1}, {2, 1}, {4, 1}, {6, 1}}, deadlines{{at(1), 3}, {at(7), 4}}},
		"passed long after the other":    {[]add{{0, 1}, {2, 20}, {30, 20}, {60, 20}}, deadlines{{at(1), 1}, {at(22), 2}, {at(50), 3}, {at(80), 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			var d deadlines
			for i, a := range test.adds {
				d = d.add(at(a.now), at(a.now+a.delay), uint64(i+1), 10*time.Second)
			}
			if !slices.Equal(d, test.want) {
				t.Errorf("got %v, want %v", d, test.want)
			}
		})
	}
}

func TestNumberOfPassedDeadlinesIsBounded(t *testing.T) {
	var d deadlines
	longest := 0
	for i := range 100_000 {
		now := at(i)
		d = d.add(now, now.Add(time.Duration(i%3)*time.Millisecond), uint64(i+1), time.Minute)
		d = d.dropBefore(d.before(now.Add(-time.Hour)) + 1)
		longest = max(longest, len(d))
	}
	if longest > 62 {
		t.Errorf("%d deadlines within an hour, with grains of a minute", longest)
	}
}

func TestDeadlinesEndWithTheirOccurrences(t *testing.T) {
	d := deadlines{{at(0), 5}, {at(60), 9}}
	if first, second, sealed := d.before(at(0)), d.before(at(1)), d.sealed(); first != 0 || second != 5 || sealed != 5 {
		t.Errorf("before the first up to %d, before the second up to %d, sealed up to %d", first, second, sealed)
	}
	d.bringForward(at(1))
	for _, step := range []struct {
		dropBefore uint64
		want       deadlines
	}{
		{5, deadlines{{at(0), 5}, {at(1), 9}}},
		{6, deadlines{{at(1), 9}}},
		{10, deadlines{}},
	} {
		if d = d.dropBefore(step.dropBefore); !slices.Equal(d, step.want) {
			t.Errorf("without those before %d: %v, want %v", step.dropBefore, d, step.want)
		}
	}
	if !d.first().IsZero() {
		t.Errorf("the first of none is %v", d.first())
	}
}
