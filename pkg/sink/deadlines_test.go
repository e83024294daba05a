package sink

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// decided is one call of deadlines.add, in seconds.
type decided struct{ now, delay int }

func TestDues(t *testing.T) {
	const grain = 10 * time.Second
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for name, test := range map[string]struct {
		decided []decided
		want    deadlines
	}{
		"now":                                {[]decided{{0, 0}}, deadlines{{at(0), 1}}},
		"later":                              {[]decided{{0, 60}}, deadlines{{at(60), 1}}},
		"sooner than before":                 {[]decided{{0, 60}, {10, 20}}, deadlines{{at(30), 2}}},
		"later than before":                  {[]decided{{0, 60}, {10, 90}}, deadlines{{at(100), 2}}},
		"now, though it was to be later":     {[]decided{{0, 60}, {10, 0}}, deadlines{{at(10), 2}}},
		"after it has fallen due":            {[]decided{{0, 5}, {5, 60}}, deadlines{{at(5), 1}, {at(65), 2}}},
		"sooner, after that":                 {[]decided{{0, 5}, {5, 60}, {6, 10}}, deadlines{{at(5), 1}, {at(16), 3}}},
		"later, after that":                  {[]decided{{0, 5}, {5, 60}, {6, 90}}, deadlines{{at(5), 1}, {at(96), 3}}},
		"now, after that":                    {[]decided{{0, 5}, {5, 60}, {6, 0}}, deadlines{{at(5), 1}, {at(6), 3}}},
		"what has fallen due stays due":      {[]decided{{0, 0}, {1, 0}, {2, 60}}, deadlines{{at(0), 2}, {at(62), 3}}},
		"one after the other":                {[]decided{{0, 0}, {10, 0}, {11, 0}, {30, 0}}, deadlines{{at(0), 1}, {at(10), 3}, {at(30), 4}}},
		"what fell due in short order":       {[]decided{{0, 1}, {2, 1}, {4, 1}, {6, 1}}, deadlines{{at(1), 3}, {at(7), 4}}},
		"what fell due long after the other": {[]decided{{0, 1}, {2, 20}, {30, 20}, {60, 20}}, deadlines{{at(1), 1}, {at(22), 2}, {at(50), 3}, {at(80), 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			var d deadlines
			for i, add := range test.decided {
				d = d.add(at(add.now), at(add.now+add.delay), uint64(i+1), grain)
			}
			if !slices.Equal(d, test.want) {
				t.Errorf("got %v, want %v", d, test.want)
			}
		})
	}
}

func TestWhatHasFallenDueIsOfBoundedLength(t *testing.T) {
	var d deadlines
	now, longest := start, 0
	for i := range 100_000 {
		d = d.add(now, now.Add(time.Duration(i%3)*time.Millisecond), uint64(i+1), time.Minute)
		d = d.dropBefore(d.before(now.Add(-time.Hour)) + 1)
		longest = max(longest, len(d))
		now = now.Add(time.Second)
	}
	if longest > 62 {
		t.Errorf("%d deadlines within an hour, told apart by the minute", longest)
	}
}

func TestDuesEndWithWhatTheyAreFor(t *testing.T) {
	d := deadlines{{start, 5}, {start.Add(time.Minute), 9}}
	if got := d.before(start); got != 0 {
		t.Errorf("before the first: up to %d", got)
	}
	if got := d.before(start.Add(time.Second)); got != 5 {
		t.Errorf("before the second: up to %d", got)
	}
	if got := d.sealed(); got != 5 {
		t.Errorf("apart from the last: up to %d", got)
	}
	d.bringForward(start.Add(time.Second))
	if got := d[1].at.Sub(start); got != time.Second {
		t.Errorf("brought forward by too little or too much: %v", got)
	}
	d = d.dropBefore(5)
	if len(d) != 2 {
		t.Errorf("5 is still pending, but left are %v", d)
	}
	if d = d.dropBefore(6); len(d) != 1 || d.first() != start.Add(time.Second) {
		t.Errorf("left %v", d)
	}
	if d = d.dropBefore(10); !d.first().IsZero() {
		t.Errorf("left %v", d)
	}
}
