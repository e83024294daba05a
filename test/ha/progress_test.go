package ha

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// progress is how often something has been done of how often it was to be.
type progress struct{ done, asked int }

func (p progress) String() string {
	if p.done < p.asked {
		return fmt.Sprintf("%d of %d", p.done, p.asked)
	}
	return fmt.Sprint(p.done)
}

// repeat does something as often as it is to be done, and says how far it is in a
// run in full. It ends early if the test has failed, and when there is no time for
// more: that is an error, unless somebody has said how often.
func repeat(t *testing.T, n int, do func(i int)) progress {
	t.Helper()
	const sayEvery = 15 * time.Second
	began := time.Now()
	said := began
	for i := range n {
		if t.Failed() {
			t.Fatalf("failed in repetition %d of %d", i, n)
		}
		if time.Since(began) > *longest {
			p := progress{i, n}
			if *times == 0 {
				t.Errorf("%s, and no time for more", p)
			}
			fmt.Fprintf(os.Stderr, "%s: %s, and no time for more\n", t.Name(), p)
			return p
		}
		do(i)
		if now := time.Now(); *inFull && (i+1 == n || now.Sub(said) >= sayEvery) {
			said = now
			fmt.Fprintf(os.Stderr, "%s: %d of %d, %s\n", t.Name(), i+1, n, now.Sub(began).Round(time.Second))
		}
	}
	return progress{n, n}
}
