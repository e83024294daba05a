package correlator_test

import (
	"flag"
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
		err := check(s)
		if err == nil {
			continue
		}
		shrunk := shrink(s, failsAsWell)
		t.Fatalf("%v\nshrunk from %d to %d items of %v\n%v", err, len(s.items), len(shrunk.items), shrunk, check(shrunk))
	}
}

// failsAsWell tries three times, since client-go's aggregator evicts at random.
func failsAsWell(s stream) bool {
	for range 3 {
		if check(s) != nil {
			return true
		}
	}
	return false
}
