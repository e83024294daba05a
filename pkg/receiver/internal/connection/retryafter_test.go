package connection_test

import (
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/receiver/internal/connection"
)

var now = time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)

func TestRetryAfterIsInSecondsOrADateAndBounded(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		" 7 ":                           7 * time.Second,
		"-1":                            0,
		"1.5":                           0,
		"3600":                          time.Hour,
		"3601":                          time.Hour,
		"18446744073709551615":          time.Hour,
		"99999999999999999999":          0,
		"Mon, 23 Nov 2026 07:00:30 GMT": 30 * time.Second,
		"Mon, 23 Nov 2026 06:00:00 GMT": 0,
		"Fri, 31 Dec 9999 23:59:59 GMT": time.Hour,
		"soon":                          0,
	} {
		if got := connection.RetryAfter(value, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"7", "-1", "99999999999999999999", "Mon, 23 Nov 2026 07:00:30 GMT"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if got := connection.RetryAfter(value, now); got < 0 || got > connection.MaxRetryAfter {
			t.Errorf("%q: %s", value, got)
		}
	})
}
