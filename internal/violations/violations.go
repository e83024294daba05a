// Package violations collects what is wrong with options.
package violations

import (
	"errors"
	"fmt"
)

// List has an error for each violation. The zero value is empty.
type List []error

// AddIf adds a violation if something is wrong.
func (l *List) AddIf(wrong bool, format string, args ...any) {
	if wrong {
		*l = append(*l, fmt.Errorf(format, args...))
	}
}

// Require adds a violation of a rule, such as "be greater than 0", unless a field keeps it.
func (l *List) Require(ok bool, field, rule string, got any) {
	l.AddIf(!ok, "%s must %s, got %v", field, rule, got)
}

// Err returns all violations as one error, nil if there is none.
func (l List) Err() error { return errors.Join(l...) }
