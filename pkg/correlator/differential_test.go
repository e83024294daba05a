package correlator_test

import (
	"flag"
	"testing"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of generated streams")
	streams   = flag.Int("streams", 250, "how many streams are generated")
)

// Whatever happens, the stored Events are in the end those that client-go's
// correlator would have made, but for what is listed as a difference; and for
// what client-go loses, they are complete.
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

// failsAsWell tries a few times, since client-go's aggregator forgets at random.
func failsAsWell(s stream) bool {
	for range 3 {
		if check(s) != nil {
			return true
		}
	}
	return false
}
