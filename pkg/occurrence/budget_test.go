package occurrence

import (
	"math"
	"testing"
)

func TestBudgetIsValid(t *testing.T) {
	for _, test := range []struct {
		burst int
		qps   float64
		valid bool
	}{
		{1, 1. / 300, true}, {25, math.Inf(1), true},
		{0, 1, false}, {-1, 1, false}, {1, 0, false}, {1, -1, false}, {1, math.NaN(), false}, {1, math.Inf(-1), false},
	} {
		b, err := NewBudget("a", test.burst, test.qps)
		if (err == nil) != test.valid {
			t.Errorf("%d, %v: %v", test.burst, test.qps, err)
		}
		if err == nil && (b.Name() != "a" || b.Burst() != test.burst || b.QPS() != test.qps) {
			t.Errorf("%+v", b)
		}
	}
}
