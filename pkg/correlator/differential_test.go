package correlator_test

import (
	"flag"
	"slices"
	"testing"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of the generated streams")
	streams   = flag.Int("streams", 250, "number of generated streams")
)

// The stored Events are those of client-go's correlator, except for the listed differences,
// and complete where client-go loses counts.
//
//	go test ./pkg/correlator -run Agrees -seed 42 -streams 1
func TestCorrelatorAgreesWithClientGo(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*streams); seed++ {
		s := generate(seed)
		if err := check(t, s); err != nil {
			shrunk := shrink(t, s)
			t.Fatalf("%v\nshrunk from %d to %d items of %+v\n%v", err, len(s.items), len(shrunk.items), shrunk, check(t, shrunk))
		}
	}
}

// shrink removes items from a stream as long as it still fails. Later items keep their time.
func shrink(t *testing.T, s stream) stream {
	t.Helper()
	for size := len(s.items) / 2; size >= 1; size /= 2 {
		for from := 0; from+size < len(s.items); {
			try := s
			try.items = slices.Delete(slices.Clone(s.items), from, from+size)
			for _, gone := range s.items[from : from+size] {
				try.items[from].gap += gone.gap
			}
			if check(t, try) != nil {
				s = try
			} else {
				from += size
			}
		}
	}
	return s
}
