package sink

import (
	"slices"
	"testing"
	"time"
)

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
