// Package rate reads rates as flags and configuration files write them.
package rate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Unlimited means no limit. No number does: in other components 0 is sometimes the default
// and sometimes no limit.
const Unlimited = "unlimited"

// Parse reads a number per second, or a fraction such as 1/300. Unlimited is +Inf. The result
// may be 0 or negative.
func Parse(s string) (float64, error) {
	if s == Unlimited {
		return math.Inf(1), nil
	}
	above, below, isFraction := strings.Cut(s, "/")
	if !isFraction {
		below = "1"
	}
	a, errA := strconv.ParseFloat(above, 64)
	b, errB := strconv.ParseFloat(below, 64)
	rate := a / b
	if errA != nil || errB != nil || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("must be a number, a fraction, or %q", Unlimited)
	}
	return rate, nil
}

// Format writes a rate in the shortest way that Parse reads.
func Format(rate float64) string {
	if math.IsInf(rate, 1) {
		return Unlimited
	}
	decimal := strconv.FormatFloat(rate, 'g', -1, 64)
	if below := math.Round(1 / rate); 1/below == rate {
		if fraction := fmt.Sprintf("1/%.0f", below); len(fraction) < len(decimal) {
			return fraction
		}
	}
	return decimal
}
