package sink

import (
	"testing"
	"time"
)

func TestWaitAfterManyFailuresStaysWithinItsBounds(t *testing.T) {
	for _, base := range []time.Duration{1, 50 * time.Millisecond, 20 * time.Second, time.Hour, 1<<63 - 1} {
		o := DefaultOptions()
		o.RetryBaseDelay, o.RetryMaxDelay = base, max(base, o.RetryMaxDelay)
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		s := &Sink{options: o}
		for failures := range 100 {
			if d := s.backoff(failures); d < base/2 || d > o.RetryMaxDelay {
				t.Errorf("%v after %d failures, from %v on", d, failures, base)
			}
		}
	}
}
