package app

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/internal/rate"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/sink"
)

// flagValue is a flag for a T. It implements pflag.Value.
type flagValue[T any] struct {
	to     *T
	kind   string // in --help
	parse  func(string) (T, error)
	format func(T) string
}

func (v flagValue[T]) Set(s string) error {
	parsed, err := v.parse(s)
	if err == nil {
		*v.to = parsed
	}
	return err
}

func (v flagValue[T]) String() string { return v.format(*v.to) }

func (v flagValue[T]) Type() string { return v.kind }

// rateValue is a flag for a rate, as package rate reads it.
func rateValue(to *float64) flagValue[float64] {
	return flagValue[float64]{to, "rate", rate.Parse, rate.Format}
}

// bytesValue is a flag for a number of bytes, as a quantity.
func bytesValue(to *int64) flagValue[int64] {
	return flagValue[int64]{to, "quantity", parseBytes, formatBytes}
}

func parseBytes(s string) (int64, error) {
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("must be a quantity of bytes, such as 512Ki")
	}
	bytes := quantity.Value() // rounded and capped
	if quantity.CmpInt64(bytes) != 0 {
		return 0, fmt.Errorf("must be a whole number of bytes")
	}
	return bytes, nil
}

func formatBytes(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// acknowledgements are the values of --acknowledge.
var acknowledgements = map[string]sink.Acknowledgement{
	"replicated": sink.AcknowledgeReplicated, "committed": sink.AcknowledgeCommitted, "received": sink.AcknowledgeReceived,
}

// acknowledgeValue is a flag for sink.Acknowledgement.
func acknowledgeValue(to *sink.Acknowledgement) flagValue[sink.Acknowledgement] {
	return flagValue[sink.Acknowledgement]{to, "string", parseAcknowledgement, formatAcknowledgement}
}

func parseAcknowledgement(s string) (sink.Acknowledgement, error) {
	when, ok := acknowledgements[s]
	if !ok {
		return 0, errors.New(`must be "replicated", "committed" or "received"`)
	}
	return when, nil
}

func formatAcknowledgement(when sink.Acknowledgement) string {
	for name, known := range acknowledgements {
		if known == when {
			return name
		}
	}
	return ""
}

// onLostValue is a flag for election.OnLost.
func onLostValue(to *election.OnLost) flagValue[election.OnLost] {
	return flagValue[election.OnLost]{to, "string", parseOnLost, func(o election.OnLost) string { return string(o) }}
}

func parseOnLost(s string) (election.OnLost, error) {
	switch onLost := election.OnLost(s); onLost {
	case election.StandBy, election.Exit:
		return onLost, nil
	default:
		return "", fmt.Errorf("must be %q or %q", election.StandBy, election.Exit)
	}
}
