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
		if err := check(t, s); err != nil {
			t.Fatalf("%v\nof %d items: %+v", err, len(s.items), s)
		}
	}
}
