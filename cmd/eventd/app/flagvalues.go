package app

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/sink"
)

// unlimited means no limit. No number does: in other components 0 is sometimes the
// default and sometimes no limit.
const unlimited = "unlimited"

// rateValue is a flag for a number per second, or a fraction such as 1/300. unlimited
// is +Inf.
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
	// pflag calls this for a zero value too, to compare it with the default.
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

// bytesValue is a flag for a number of bytes, as a quantity.
type bytesValue struct{ bytes *int64 }

var _ pflag.Value = bytesValue{}

func (v bytesValue) Set(s string) error {
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("must be a quantity of bytes, such as 512Ki")
	}
	bytes := quantity.Value() // rounded and capped
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

// acknowledgements are the values of --acknowledge.
var acknowledgements = map[string]sink.Acknowledgement{
	"replicated": sink.AcknowledgeReplicated, "committed": sink.AcknowledgeCommitted, "received": sink.AcknowledgeReceived,
}

// acknowledgeValue is a flag for sink.Acknowledgement.
type acknowledgeValue struct{ when *sink.Acknowledgement }

var _ pflag.Value = acknowledgeValue{}

func (v acknowledgeValue) Set(s string) error {
	when, ok := acknowledgements[s]
	if !ok {
		return errors.New(`must be "replicated", "committed" or "received"`)
	}
	*v.when = when
	return nil
}

func (v acknowledgeValue) String() string {
	if v.when == nil {
		return ""
	}
	for name, when := range acknowledgements {
		if when == *v.when {
			return name
		}
	}
	return ""
}

func (v acknowledgeValue) Type() string { return "string" }

// onLostValue is a flag for election.OnLost.
type onLostValue struct{ onLost *election.OnLost }

var _ pflag.Value = onLostValue{}

func (v onLostValue) Set(s string) error {
	switch onLost := election.OnLost(s); onLost {
	case election.StandBy, election.Exit:
		*v.onLost = onLost
		return nil
	default:
		return fmt.Errorf("must be %q or %q", election.StandBy, election.Exit)
	}
}

func (v onLostValue) String() string {
	if v.onLost == nil {
		return ""
	}
	return string(*v.onLost)
}

func (v onLostValue) Type() string { return "string" }
