package truncate

import (
	"testing"
	"unicode/utf8"
)

func TestStringsAreCutBetweenCharacters(t *testing.T) {
	const odd = "äa€😀z"
	for limit := range len(odd) + 2 {
		got := String(odd, limit)
		if len(got) > limit || !utf8.ValidString(got) || odd[:len(got)] != got {
			t.Errorf("%d bytes: %q", limit, got)
		}
		if _, next := utf8.DecodeRuneInString(odd[len(got):]); len(got) < len(odd) && len(got)+next <= limit {
			t.Errorf("%d bytes: %q, one more character fits", limit, got)
		}
	}
	if got := String("\x80\x80\x80\x80\x80\x80", 5); got != "\x80\x80\x80\x80\x80" {
		t.Errorf("no UTF-8: %q", got)
	}
}
