package identity

import (
	"strings"
	"unicode/utf8"
)

// Limits of the apiserver for new-style Events, in bytes
// (kubernetes pkg/apis/core/validation/events.go).
const (
	MaxReason            = 128
	MaxAction            = 128
	MaxReportingInstance = 128
	MaxNote              = 1024
)

// Cut shortens s, which is valid UTF-8, to at most limit bytes, at a character boundary.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit]) // frees the rest
}
