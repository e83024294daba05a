package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/pkg/election"
)

// unlimited is the word for no limit. A number never means it: 0 has meant
// "default" in one component and "no limit" in another.
const unlimited = "unlimited"

// rateValue is a flag for a number per second, which may be written as a fraction
// such as 1/300; no limit is +Inf.
type rateValue struct{ rate *float64 }

var _ pflag.Value = rateValue{}

func (v rateValue) Set(s string) error {
	if s == unlimited {
		*v.rate = math.Inf(1)
		return nil
	}
	above, below, isFraction := strings.Cut(s, "/")
	if !isFraction {
		below = "1"
	}
	a, errA := strconv.ParseFloat(above, 64)
	b, errB := strconv.ParseFloat(below, 64)
	rate := a / b
	if errA != nil || errB != nil || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return fmt.Errorf("must be a number, a fraction, or %q", unlimited)
	}
	*v.rate = rate
	return nil
}

func (v rateValue) String() string {
	// pflag asks a zero value too, to find out what the default looks like.
	if v.rate == nil {
		return ""
	}
	if math.IsInf(*v.rate, 1) {
		return unlimited
	}
	decimal := strconv.FormatFloat(*v.rate, 'g', -1, 64)
	if below := math.Round(1 / *v.rate); 1/below == *v.rate {
		if fraction := fmt.Sprintf("1/%.0f", below); len(fraction) < len(decimal) {
			return fraction
		}
	}
	return decimal
}

func (v rateValue) Type() string { return "rate" }

// bytesValue is a flag for a number of bytes, written as a quantity.
type bytesValue struct{ bytes *int64 }

var _ pflag.Value = bytesValue{}

func (v bytesValue) Set(s string) error {
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("must be a quantity of bytes, such as 512Ki")
	}
	bytes := quantity.Value() // rounded, and cut to what fits
	if quantity.CmpInt64(bytes) != 0 {
		return fmt.Errorf("must be a whole number of bytes")
	}
	*v.bytes = bytes
	return nil
}

func (v bytesValue) String() string {
	if v.bytes == nil {
		return ""
	}
	return resource.NewQuantity(*v.bytes, resource.BinarySI).String()
}

func (v bytesValue) Type() string { return "quantity" }

// onLostValue is a flag for what follows a lost lease.
type onLostValue struct{ what *election.OnLost }

var _ pflag.Value = onLostValue{}

func (v onLostValue) Set(s string) error {
	switch what := election.OnLost(s); what {
	case election.StandBy, election.Exit:
		*v.what = what
		return nil
	default:
		return fmt.Errorf("must be %q or %q", election.StandBy, election.Exit)
	}
}

func (v onLostValue) String() string {
	if v.what == nil {
		return ""
	}
	return string(*v.what)
}

func (v onLostValue) Type() string { return "string" }
