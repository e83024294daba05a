package describe

import "errors"

// ErrNothingObserves is that only those that observe serve a resource, and that there are none.
var ErrNothingObserves = errors.New("nothing observes here")

// flags are those of eventd without which it does not serve a resource.
var flags = map[string]string{
	"timeline": "--history-bytes", "tail": "--history-bytes",
	"why": "--trail-bytes", "drops": "--trail-bytes", "top": "--trail-bytes",
}

// Flag returns the flag of eventd without which it does not serve a resource, "" if it always does.
func Flag(resource string) string { return flags[resource] }
