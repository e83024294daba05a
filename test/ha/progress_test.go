package ha

import (
	"fmt"
	"testing"

	"github.com/eventd/eventd/test/longrun"
)

// progress is how often something has been done of how often it was to be.
type progress struct{ done, planned int }

func (p progress) String() string {
	if p.done < p.planned {
		return fmt.Sprintf("%d of %d", p.done, p.planned)
	}
	return fmt.Sprint(p.done)
}

// repeat does something as often as it is to be done. It ends early if the test has
// failed, and when the time of -longest is over, which is an error without -times.
func repeat(t *testing.T, n int, do func(i int)) progress {
	t.Helper()
	steps := longrun.NewProgress(t, n)
	for i := range n {
		if t.Failed() {
			t.Fatalf("failed in repetition %d of %d", i, n)
		}
		if steps.Elapsed() > *longest {
			p := progress{i, n}
			if *times == 0 {
				t.Errorf("%s, and no time for more", p)
			}
			return p
		}
		do(i)
		steps.Step()
	}
	return progress{n, n}
}
