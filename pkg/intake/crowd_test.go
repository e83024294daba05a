package intake

import (
	"testing"
	"time"
)

// callers come again when they are told, in steps of 100 ms. None of them is served. inVain returns how many have come
// in each second.
func inVain(c *crowd, callers, seconds int) (out []int) {
	const perSecond = 10
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	due := make([]int, callers)
	for step := range seconds * perSecond {
		if step%perSecond == 0 {
			out = append(out, 0)
		}
		for i := range due {
			if due[i] <= step {
				out[len(out)-1]++
				due[i] = step + perSecond*c.retryAfter(begin.Add(time.Duration(step)*time.Second/perSecond))
			}
		}
	}
	return out
}

func TestCrowdComesInVainSeldom(t *testing.T) {
	const callers = 3000
	c := newCrowd(1000)
	perSecond := inVain(c, callers, 120)
	if perSecond[0] != callers {
		t.Errorf("%d have come in the first second", perSecond[0])
	}
	for second, n := range perSecond[60:] {
		if n < callers/maxRetryAfter/2 || n > callers/maxRetryAfter*2 {
			t.Errorf("%d come in second %d, and %d are to be told to come after %d s", n, 60+second, callers, maxRetryAfter)
		}
	}
}

// Few are told to come again soon, whoever has come before.
func TestCrowdIsForgotten(t *testing.T) {
	few := newCrowd(1000)
	for second, n := range inVain(few, 40, 30) {
		if n != 40 {
			t.Errorf("alone, %d of 40 come in second %d", n, second)
		}
	}
	c := newCrowd(1000)
	inVain(c, 3000, 60)
	later := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	for second := range 30 {
		for range 40 {
			if wait := c.retryAfter(later.Add(time.Duration(second) * time.Second)); second > maxRetryAfter+1 && wait != 1 {
				t.Fatalf("after %d s, one of few waits %d s", second, wait)
			}
		}
	}
}
