package v1alpha1

import (
	"encoding/json"

	"github.com/eventd/eventd/internal/rate"
)

// Rate is a number, a fraction such as 1/300, or unlimited, as the flags of eventd take it. In the
// file, it is a number or a string.
type Rate string

// UnmarshalJSON keeps what the file has, so that the error of a wrong rate has its path.
func (r *Rate) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	*r = Rate(text)
	return nil
}

// PerSecond returns the number per second, +Inf if it is unlimited.
func (r Rate) PerSecond() (float64, error) { return rate.Parse(string(r)) }
