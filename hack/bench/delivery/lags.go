package main

import (
	"context"
	"sync"
	"time"

	"github.com/eventd/eventd/test/await"
)

// lags are how far receivers are behind, by their metrics, once a second.
type lags struct {
	stop func() // ends the samples

	mu      sync.Mutex
	samples map[string][]sample // by receiver
}

type sample struct {
	at  time.Time
	lag time.Duration
}

// follow samples the lags of destinations until stop.
func (e *eventd) follow(of []*destination) *lags {
	l := &lags{samples: make(map[string][]sample)}
	l.stop = sync.OnceFunc(await.Every(time.Second, func(ctx context.Context) {
		m, err := e.metrics(ctx)
		if err != nil {
			return // the next sample has it
		}
		now := time.Now()
		for _, d := range of {
			l.add(d.name, sample{now, time.Duration(m.Sum("eventd_receiver_lag_seconds", "receiver="+d.name) * float64(time.Second))})
		}
	}))
	return l
}

func (l *lags) add(receiver string, s sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples[receiver] = append(l.samples[receiver], s)
}

func (l *lags) longest(receiver string) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.samples[receiver] {
		longest = max(longest, s.lag)
	}
	return longest
}

// upToDate is the lag of a receiver that has caught up. A slow one answers once a second.
const upToDate = 2 * time.Second

// caughtUp is how long after a moment a receiver had caught up. ok is false if it never had.
func (l *lags) caughtUp(receiver string, from time.Time) (after time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.samples[receiver] {
		if !s.at.Before(from) && s.lag < upToDate {
			return s.at.Sub(from), true
		}
	}
	return 0, false
}
