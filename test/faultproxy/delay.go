package faultproxy

import (
	"context"
	"math/rand/v2"
	"time"
)

// Delay is a distribution of durations: it draws one from the generator that it
// is given, and from nothing else. nil is no delay.
type Delay func(*rand.Rand) time.Duration

// Fixed is always d.
func Fixed(d time.Duration) Delay {
	return func(*rand.Rand) time.Duration { return d }
}

// Uniform is anything from least up to most, all as likely.
func Uniform(least, most time.Duration) Delay {
	return func(rng *rand.Rand) time.Duration {
		return least + time.Duration(rng.Float64()*float64(most-least))
	}
}

// Exponential is short mostly and long at times: mean on average, but for what
// is cut off at most.
func Exponential(mean, most time.Duration) Delay {
	return func(rng *rand.Rand) time.Duration {
		return min(time.Duration(rng.ExpFloat64()*float64(mean)), most)
	}
}

func (d Delay) draw(rng *rand.Rand) time.Duration {
	if d == nil {
		return 0
	}
	return d(rng)
}

// wait waits for d and reports whether ctx allowed it.
func wait(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
