package sink

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

func TestWriteWaitsForItsDueTime(t *testing.T) {
	type add struct{ at, delay time.Duration }
	const s, m = time.Second, time.Minute
	for name, test := range map[string]struct {
		takes time.Duration
		adds  []add
		want  []time.Duration
	}{
		"now":                     {0, []add{{0, 0}}, []time.Duration{0}},
		"later":                   {0, []add{{0, m}}, []time.Duration{m}},
		"with what came before":   {0, []add{{0, m}, {10 * s, 50 * s}, {20 * s, 40 * s}}, []time.Duration{m}},
		"sooner than decided":     {0, []add{{0, 2 * m}, {10 * s, 20 * s}}, []time.Duration{30 * s}},
		"now after all":           {0, []add{{0, 2 * m}, {10 * s, 0}}, []time.Duration{10 * s}},
		"later than decided":      {0, []add{{0, m}, {10 * s, 2 * m}}, []time.Duration{130 * s}},
		"sooner, then later":      {0, []add{{0, m}, {1 * s, 2 * s}, {2 * s, 5 * m}}, []time.Duration{302 * s}},
		"put off again and again": {0, []add{{0, m}, {30 * s, m}, {m, m}, {90 * s, m}}, []time.Duration{150 * s}},
		"again, after a write":    {0, []add{{0, m}, {70 * s, m}}, []time.Duration{m, 130 * s}},
		"less than nothing":       {0, []add{{0, -m}}, []time.Duration{0}},
		"in flight":               {5 * s, []add{{0, 0}, {1 * s, m}}, []time.Duration{0, 61 * s}},
		"in flight, now":          {5 * s, []add{{0, 0}, {1 * s, 0}}, []time.Duration{0, 5 * s}},
		"in flight, replaced":     {5 * s, []add{{0, 0}, {1 * s, m}, {2 * s, 10 * s}}, []time.Duration{0, 12 * s}},
		"in flight, put off":      {5 * s, []add{{0, 0}, {1 * s, m}, {2 * s, 2 * m}}, []time.Duration{0, 122 * s}},
		"in flight until past it": {5 * s, []add{{0, 0}, {1 * s, s}, {3 * s, 30 * s}}, []time.Duration{0, 5 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			c.takes = test.takes
			timed(t, c, nil, func(t *testing.T, b *bench) {
				for _, add := range test.adds {
					pass(add.at - time.Since(c.begun))
					b.recordLater(0, add.delay)
					synctest.Wait()
				}
				c.wantWrites(t, int64(len(test.adds)), test.want...)
			})
		})
	}
}

func TestUserPutsOffTheWriteOfNoOther(t *testing.T) {
	type add struct {
		user      string
		at, delay time.Duration
	}
	const s, m = time.Second, time.Minute
	for name, test := range map[string]struct {
		takes time.Duration
		adds  []add
		want  []time.Duration
	}{
		"its own":                             {0, []add{{"a", 0, m}, {"a", s, 2 * m}}, []time.Duration{121 * s}},
		"another's":                           {0, []add{{"a", 0, m}, {"b", s, 2 * m}}, []time.Duration{m}},
		"another's, again and again":          {0, []add{{"a", 0, m}, {"b", s, 2 * m}, {"b", 30 * s, m}, {"b", 59 * s, m}}, []time.Duration{m}},
		"another's, in turn with that":        {0, []add{{"a", 0, m}, {"b", s, m}, {"a", 2 * s, 2 * m}, {"b", 3 * s, m}}, []time.Duration{m}},
		"another's, which it brought forward": {0, []add{{"a", 0, m}, {"b", s, 2 * s}, {"b", 2 * s, 5 * m}}, []time.Duration{m}},
		"another's, after a write":            {0, []add{{"a", 0, s}, {"b", 2 * s, m}, {"a", 3 * s, 20 * s}, {"b", 4 * s, m}}, []time.Duration{s, 23 * s}},
		"its own, after a write of another":   {0, []add{{"a", 0, s}, {"b", 2 * s, m}, {"b", 3 * s, 2 * m}}, []time.Duration{s, 123 * s}},
		"another's, while that is in flight":  {5 * s, []add{{"a", 0, 10 * s}, {"b", s, m}, {"b", 12 * s, m}}, []time.Duration{10 * s, 72 * s}},
		"a recorder's":                        {0, []add{{"", 0, m}, {"b", s, 2 * m}}, []time.Duration{m}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			c.takes = test.takes
			timed(t, c, nil, func(t *testing.T, b *bench) {
				for _, add := range test.adds {
					pass(add.at - time.Since(c.begun))
					b.recordLater(0, add.delay, func(o *occurrence.Occurrence) { o.User = add.user })
				}
				c.wantWrites(t, int64(len(test.adds)), test.want...)
			})
		})
	}
}

// Adding a hundred times a second what can wait for until then must not wake the
// series up each time.
func TestSeriesThatWaitsSleeps(t *testing.T) {
	c := newClocked()
	timed(t, c, nil, func(t *testing.T, b *bench) {
		var wakes int
		var last time.Time
		for i := range 10_000 {
			// Put off, a little.
			b.recordLater(0, 200*time.Second-time.Since(c.begun)+time.Duration(i)*time.Microsecond)
			b.mu.Lock()
			if _, next := b.scheduler.Next(time.Now()); next != last {
				wakes, last = wakes+1, next
			}
			b.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
		if wakes != 1 {
			t.Errorf("%d wake-ups were arranged", wakes)
		}
		c.wantWrites(t, 10_000, 200*time.Second+9999*time.Microsecond)
	})
}

func TestDeferredIsCalledInPlaceOfSettled(t *testing.T) {
	for name, test := range map[string]struct {
		delay                     time.Duration
		mayDefer                  bool
		wantDeferred, wantSettled int
		wantDoneAfter             time.Duration
	}{
		"later":                {delay: time.Minute, mayDefer: true, wantDeferred: 1},
		"now":                  {delay: 0, mayDefer: true, wantSettled: 1},
		"somebody has to wait": {delay: time.Minute, mayDefer: false, wantSettled: 1, wantDoneAfter: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			timed(t, c, nil, func(t *testing.T, b *bench) {
				var deferred, settled int
				var done time.Duration
				b.recordLater(0, test.delay, func(o *occurrence.Occurrence) {
					if test.mayDefer {
						o.Deferred = func() {
							deferred++
							b.Pending() // needs the mutex, which must not be held
						}
					}
					o.Settled = func(occurrence.Settlement) { settled, done = settled+1, time.Since(c.begun) }
				})
				if deferred != test.wantDeferred {
					t.Errorf("deferred %d times when it was added", deferred)
				}
				c.wantWrites(t, 1, test.delay)
				if deferred != test.wantDeferred || settled != test.wantSettled || done != test.wantDoneAfter {
					t.Errorf("deferred %d times, settled %d times after %v", deferred, settled, done)
				}
				if got := b.ledger.Totals(); got.Outcomes[occurrence.Created] != 1 {
					t.Errorf("counted as %v", got)
				}
			})
		})
	}
}

func TestWhatIsShedIsNotDeferred(t *testing.T) {
	c := newClocked()
	timed(t, c, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		var deferred, settled int
		for i := range 2 {
			b.recordLater(i, time.Minute, func(o *occurrence.Occurrence) {
				o.Deferred = func() { deferred++ }
				o.Settled = func(occurrence.Settlement) { settled++ }
			})
		}
		if deferred != 1 || settled != 1 {
			t.Errorf("%d deferred, %d settled", deferred, settled)
		}
	})
}

// A storm on one series makes one write when it begins and one when it is due.
func TestStormOnOneSeriesMakesTwoWrites(t *testing.T) {
	const storm = 25_000
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			c := newClocked()
			timed(t, c, nil, func(t *testing.T, b *bench) {
				settled := 0
				deferred := 0
				for i := range storm {
					delay := max(0, 30*time.Second-time.Since(c.begun))
					if i == 0 {
						delay = 0
					}
					b.recordLater(0, delay, func(o *occurrence.Occurrence) {
						if named {
							o.Client, o.Total = fmt.Sprint("client-", i), 1
						}
						o.Settled = func(occurrence.Settlement) { settled++ }
						o.Deferred = func() { deferred++ }
					})
					if i == 0 {
						synctest.Wait()
					}
					if i%1000 == 999 {
						pass(time.Second)
					}
				}
				if p := b.Pending(); p.Occurrences != storm-1 || b.entries() != 1 {
					t.Errorf("%+v in %d entries", p, b.entries())
				}
				if limit := int64(4096 + storm*64); b.holds().bytes > limit {
					t.Errorf("%d bytes held, want at most %d", b.holds().bytes, limit)
				}
				c.wantWrites(t, storm, 0, 30*time.Second)
				if settled != 1 || deferred != storm-1 {
					t.Errorf("%d settled, %d deferred", settled, deferred)
				}
			})
		})
	}
}

func TestWhatIsLeftOfALargeBatchIsDueAtOnce(t *testing.T) {
	c := newClocked()
	timed(t, c, nil, func(t *testing.T, b *bench) {
		const named = 2*counter.MaxBatch + 10
		for i := range named {
			b.recordLater(0, time.Minute, func(o *occurrence.Occurrence) { o.Client, o.Total = fmt.Sprint("client-", i), 1 })
		}
		c.wantWrites(t, named, time.Minute, time.Minute, time.Minute)
	})
}

// A client that posts again what is pending is counted once, however its reports
// are put together.
func TestReportsThatShareAnEntryAreCountedOnce(t *testing.T) {
	type report struct {
		client        string
		total, weight int64
	}
	for name, test := range map[string]struct {
		reports           []report
		entries           int
		counted, replayed int64
	}{
		"a retry":                      {[]report{{"a", 1, 1}, {"a", 1, 1}}, 1, 1, 1},
		"a retry behind another":       {[]report{{"a", 3, 3}, {"b", 1, 1}, {"a", 3, 3}}, 1, 4, 3},
		"raised one by one":            {[]report{{"a", 1, 1}, {"a", 2, 1}, {"a", 3, 1}}, 1, 3, 0},
		"raised with a retry between":  {[]report{{"a", 1, 1}, {"a", 1, 1}, {"a", 2, 1}}, 1, 2, 1},
		"a retry of more":              {[]report{{"a", 1, 1}, {"a", 2, 1}, {"a", 2, 2}}, 1, 2, 2},
		"a part of it is new":          {[]report{{"a", 2, 2}, {"a", 5, 5}}, 1, 5, 2},
		"a difference, the whole lost": {[]report{{"a", 7, 2}, {"b", 1, 1}, {"a", 9, 2}}, 1, 5, 0},
		"with anonymous ones":          {[]report{{"", 0, 4}, {"a", 1, 1}, {"", 0, 1}, {"a", 1, 1}}, 1, 6, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocked()
			timed(t, c, nil, func(t *testing.T, b *bench) {
				for _, r := range test.reports {
					b.recordLater(0, time.Minute, func(o *occurrence.Occurrence) { o.Client, o.Total, o.Weight = r.client, r.total, r.weight })
				}
				if got := b.entries(); got != test.entries {
					t.Errorf("%d entries", got)
				}
				c.wantWrites(t, test.counted, time.Minute)
				if got := b.ledger.Totals(); got.Written() != test.counted || got.Outcomes[occurrence.Replayed] != test.replayed {
					t.Errorf("settled as %v", got.Outcomes)
				}
			})
		})
	}
}

// A client may change its Event without raising the count. That is written also
// if all that it shares its entry with was counted before.
func TestChangeAmongReplaysIsWritten(t *testing.T) {
	c := newClocked()
	timed(t, c, nil, func(t *testing.T, b *bench) {
		report := func(total, weight int64, delay time.Duration) {
			b.recordLater(0, delay, func(o *occurrence.Occurrence) { o.Client, o.Total, o.Weight = "a", total, weight })
		}
		report(3, 3, 0)
		synctest.Wait()
		report(3, 3, time.Minute)
		synctest.Wait()
		pass(2 * time.Minute) // a replay alone needs no write
		report(3, 3, time.Minute)
		report(3, 0, time.Minute)
		c.wantWrites(t, 3, 0, 3*time.Minute)
	})
}

func TestDeferredSeriesTakeNoGoroutines(t *testing.T) {
	c := newClocked()
	timed(t, c, nil, func(t *testing.T, b *bench) {
		before := runtime.NumGoroutine()
		for i := range 10_000 {
			b.recordLater(i, time.Hour)
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines before, %d after", before, after)
		}
		pass(time.Hour + time.Second)
		if got := c.server.Counted(); got != 10_000 {
			t.Errorf("counted %d", got)
		}
	})
}

func TestDeferredSeriesAreAMetric(t *testing.T) {
	c := newClocked()
	c.takes = time.Second
	r := prometheus.NewPedanticRegistry()
	timed(t, c, func(o *Options) { o.Registerer = r }, func(t *testing.T, b *bench) {
		want := func(pending, deferred int) {
			t.Helper()
			synctest.Wait()
			for name, want := range map[string]int{"eventd_sink_pending_series": pending, "eventd_sink_deferred_series": deferred} {
				if got := gauge(t, r, name); got != float64(want) {
					t.Errorf("%s is %v, want %d", name, got, want)
				}
			}
		}
		want(0, 0)
		b.recordLater(0, time.Minute)
		b.recordLater(1, time.Hour)
		b.record(2)
		want(3, 2)
		b.recordLater(1, 0)
		want(3, 1)
		b.recordLater(2, time.Minute) // in flight
		pass(2 * time.Second)
		want(2, 2)
		pass(2 * time.Minute)
		want(0, 0)
		b.recordLater(3, time.Hour)
		want(1, 1)
		b.Flush(t.Context())
		want(0, 0)
	})
}
