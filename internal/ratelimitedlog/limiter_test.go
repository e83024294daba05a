package ratelimitedlog

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestEachReasonIsAllowedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Interval)
		for _, step := range []struct {
			after  time.Duration // the step before
			reason string
			want   bool
		}{
			{0, "a", true},
			{0, "a", false},
			{Interval - 1, "a", false},
			{0, "b", true},
			{1, "a", true},
			{0, "b", false},
		} {
			time.Sleep(step.after)
			if got := l.Allow(step.reason); got != step.want {
				t.Errorf("%s after another %s: %t", step.reason, step.after, got)
			}
		}
	})
}
