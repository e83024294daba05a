package relay

import (
	"testing"
	"time"
)

func TestPauseBeforeTheNextSession(t *testing.T) {
	for name, test := range map[string]struct {
		last, lasted, want time.Duration
	}{
		"the first one":        {0, 0, 50 * time.Millisecond},
		"the second one":       {50 * time.Millisecond, time.Second, 100 * time.Millisecond},
		"the third one":        {100 * time.Millisecond, time.Second, 200 * time.Millisecond},
		"the last of many":     {time.Second, 0, time.Second},
		"after a long session": {time.Second, 10 * time.Second, 50 * time.Millisecond},
	} {
		if got := nextPause(test.last, test.lasted); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
