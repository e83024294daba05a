package ha

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// repeat does something as often as it is to be done, and says how far it is in a
// run in full. It ends early if the test has failed.
func repeat(t *testing.T, n int, do func(i int)) {
	t.Helper()
	const sayEvery = 15 * time.Second
	began := time.Now()
	said := began
	for i := range n {
		if t.Failed() {
			t.Fatalf("failed in repetition %d of %d", i, n)
		}
		if time.Since(began) > *longest {
			fmt.Fprintf(os.Stderr, "%s: %d of %d, and no time for more\n", t.Name(), i, n)
			return
		}
		do(i)
		if now := time.Now(); *inFull && (i+1 == n || now.Sub(said) >= sayEvery) {
			said = now
			fmt.Fprintf(os.Stderr, "%s: %d of %d, %s\n", t.Name(), i+1, n, now.Sub(began).Round(time.Second))
		}
	}
}
