// Package truncate shortens strings.
package truncate

import "unicode/utf8"

// String returns what of s fits into a number of bytes, between characters and without a copy: it keeps all of s in
// memory. What is no UTF-8 may be cut anywhere.
func String(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for end := limit; end >= 0 && end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:limit]
}
