package identity

import (
	"strings"
	"unicode/utf8"
)

// The apiserver's limits on new-style Events, in bytes: see
// pkg/apis/core/validation/events.go of kubernetes.
const (
	MaxReason            = 128
	MaxAction            = 128
	MaxReportingInstance = 128
	MaxNote              = 1024
)

// Cut shortens s, which is valid UTF-8, to at most limit bytes and leaves no part
// of a character at the end.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit]) // lets go of the rest
}
