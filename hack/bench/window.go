package main

import (
	"context"
	"net/http"
	"time"

	"github.com/eventd/eventd/test/await"
)

// window is what passes in a while.
type window struct {
	took    time.Duration
	answers map[int]int
}

func (w window) rate() float64 {
	return float64(w.answers[http.StatusCreated]) / w.took.Seconds()
}

// refusals are a share of all answers.
func (w window) refusals() float64 {
	all := 0
	for _, n := range w.answers {
		all += n
	}
	return float64(w.answers[http.StatusTooManyRequests]) / float64(all)
}

func (w window) and(next window) window {
	sum := window{w.took + next.took, make(map[int]int)}
	for _, part := range []window{w, next} {
		for code, n := range part.answers {
			sum.answers[code] += n
		}
	}
	return sum
}

// during returns what passes from now on.
func (t *traffic) during(ctx context.Context, d time.Duration) (window, error) {
	began, before := time.Now(), t.snapshot()
	if err := await.Sleep(ctx, d); err != nil {
		return window{}, err
	}
	w := window{time.Since(began), t.snapshot()}
	for code, n := range before {
		w.answers[code] -= n
	}
	return w, nil
}
