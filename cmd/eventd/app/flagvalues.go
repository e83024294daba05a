package app

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/internal/rate"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/sink"
)

// rateValue is a flag for a rate, as package rate reads it.
type rateValue struct{ rate *float64 }

var _ pflag.Value = rateValue{}

func (v rateValue) Set(s string) error {
	parsed, err := rate.Parse(s)
	if err == nil {
		*v.rate = parsed
	}
	return err
}

func (v rateValue) String() string {
	// pflag calls this for a zero value too, to compare it with the default.
	if v.rate == nil {
		return ""
	}
	return rate.Format(*v.rate)
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
