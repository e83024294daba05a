package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestPauseBeforeTheNextSession(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		last, lasted time.Duration
		err          error
		want         time.Duration
	}{
		"the first one":                        {0, 0, failed, 50 * time.Millisecond},
		"the second one":                       {50 * time.Millisecond, time.Second, failed, 100 * time.Millisecond},
		"ended in order":                       {100 * time.Millisecond, time.Second, nil, 200 * time.Millisecond},
		"the last of many":                     {time.Second, 0, failed, time.Second},
		"after a long session":                 {time.Second, 10 * time.Second, failed, 50 * time.Millisecond},
		"a release without replication":        {0, 0, fmt.Errorf("opening: %w", errUnsupported), 10 * time.Second},
		"that had been one until a moment ago": {10 * time.Second, 0, failed, time.Second},
	} {
		if got := nextPause(test.last, test.lasted, test.err); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
