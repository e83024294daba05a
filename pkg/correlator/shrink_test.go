package correlator_test

import (
	"slices"
	"testing"
	"time"
)

// shrink returns a smaller stream that still fails. It removes chunks, then single items,
// and then simplifies the remaining items.
func shrink(s stream, fails func(stream) bool) stream {
	for size := len(s.items) / 2; size >= 1; {
		smaller, ok := withoutChunk(s, size, fails)
		s = smaller
		if size = min(size, len(s.items)); !ok {
			size /= 2
		}
	}
	for n := range s.items {
		for _, plainer := range plain {
			s = tryItem(s, n, plainer, fails)
		}
	}
	return s
}

// withoutChunk removes every chunk of a size that is not needed.
func withoutChunk(s stream, size int, fails func(stream) bool) (_ stream, found bool) {
	for from := 0; from+size <= len(s.items); {
		try := s
		try.items = slices.Delete(slices.Clone(s.items), from, from+size)
		if from < len(try.items) {
			// Later items keep their time.
			for _, gone := range s.items[from : from+size] {
				try.items[from].gap += gone.gap
			}
		}
		if fails(try) {
			s, found = try, true
		} else {
			from += size
		}
	}
	return s, found
}

// plain are changes that simplify an item, the largest first.
var plain = []func(*item){
	func(i *item) { *i = item{gap: i.gap} },
	func(i *item) { i.object = 0 },
	func(i *item) { i.field = 0 },
	func(i *item) { i.source = 0 },
	func(i *item) { i.reporter = 0 },
	func(i *item) { i.warning = false },
	func(i *item) { i.reason = 0 },
	func(i *item) { i.message = 0 },
	func(i *item) { i.gap = time.Nanosecond },
	func(i *item) { i.gap = i.gap.Round(time.Hour) },
	func(i *item) { i.gap = i.gap.Round(time.Minute) },
	func(i *item) { i.gap = i.gap.Round(time.Second) },
	func(i *item) { i.gap = i.gap.Round(time.Millisecond) },
	func(i *item) { i.gap = i.gap.Round(time.Microsecond) },
}

func tryItem(s stream, n int, change func(*item), fails func(stream) bool) stream {
	changed := s.items[n]
	change(&changed)
	if changed == s.items[n] || changed.gap <= 0 {
		return s
	}
	try := s
	try.items = slices.Clone(s.items)
	try.items[n] = changed
	if fails(try) {
		return try
	}
	return s
}

// A failure that needs two of many items shrinks to those two.
func TestFailuresAreShrunk(t *testing.T) {
	s := generate(7)
	for i := range s.items {
		s.items[i].message = 0
	}
	s.items[10].message, s.items[40].message = 5, 6
	shrunk := shrink(s, func(s stream) bool {
		var at [2]time.Duration
		var now time.Duration
		for _, i := range s.items {
			now += i.gap
			if i.message >= 5 {
				at[i.message-5] = now
			}
		}
		return at[0] > 0 && at[1] > at[0]
	})
	want := []item{{gap: 1, message: 5}, {gap: 1, message: 6}}
	if !slices.Equal(shrunk.items, want) {
		t.Errorf("shrunk to %v, want %v", shrunk.items, want)
	}
}
