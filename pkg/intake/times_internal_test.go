package intake

import (
	"testing"
	"time"
)

// JSON has years of four digits, in UTC, and no parts of a second in most times.
func TestTimesAreThoseOfJSON(t *testing.T) {
	east := time.FixedZone("east", 3600)
	for _, test := range []struct {
		time, want time.Time
		ok         bool
	}{
		{time.Time{}, time.Time{}, true},
		{time.Unix(1_700_000_000, 999_999_999), time.Unix(1_700_000_000, 0), true},
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), true},
		{time.Date(0, 1, 1, 0, 0, -1, 0, time.UTC), time.Date(0, 1, 1, 0, 0, -1, 0, time.UTC), false},
		{time.Date(0, 1, 1, 0, 0, 0, 0, east), time.Date(0, 1, 1, 0, 0, 0, 0, east), false},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, east), time.Date(10000, 1, 1, 0, 0, 0, 0, east), true},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), true},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		got := test.time
		if ok := round(&got, time.Second); ok != test.ok || !got.Equal(test.want) {
			t.Errorf("%v: %v, %t, want %v, %t", test.time, got, ok, test.want, test.ok)
		}
	}
}
