package daemon

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// unlimited is the word for no limit. A number never means it: 0 has meant
// "default" in one component and "no limit" in another.
const unlimited = "unlimited"

// rateValue is a flag for a number per second; no limit is +Inf.
type rateValue struct{ rate *float64 }

var _ pflag.Value = rateValue{}

func (v rateValue) Set(s string) error {
	if s == unlimited {
		*v.rate = math.Inf(1)
		return nil
	}
	rate, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return fmt.Errorf("must be a number or %q", unlimited)
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
	return strconv.FormatFloat(*v.rate, 'g', -1, 64)
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
