// Package seeds says which seeds a randomised test tries. One flag says it for all of them:
//
//	go test -short                    a third of its seeds (make check)
//	go test                           its seeds (make test)
//	go test -times=20                 20 times as many (make soak)
//	go test -run TestThatFailed -seed=42    one seed, such as that of a failure
package seeds

import (
	"flag"
	"iter"
	"testing"
)

var (
	only  = flag.Int64("seed", -1, "the only seed that randomised tests try")
	times = flag.Uint64("times", 1, "how many times as many seeds randomised tests try")
)

// Of returns the seeds of a test that has n of them: 0 and those that follow.
func Of(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if *only >= 0 {
			yield(uint64(*only))
			return
		}
		n := n * *times
		if testing.Short() {
			n = (n + 2) / 3
		}
		for seed := range n {
			if !yield(seed) {
				return
			}
		}
	}
}
