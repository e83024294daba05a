package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/hack/bench/internal/timing"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

// stream is a load that never ends: as soon as an occurrence is written, another
// one is recorded in the same namespace.
type stream struct {
	mu     sync.Mutex
	way    []time.Time // when those were recorded that are under way, else zero
	window *flow       // nil while nothing is measured
}

// flow is what became of a stream within a window.
type flow struct {
	since     time.Time
	took      time.Duration
	latencies []time.Duration // of what was written
	waiting   []time.Duration // of what was under way at its end
}

const (
	flowWarmUp = time.Second
	flowWindow = 7 * time.Second
	// outstanding is how many occurrences are under way at any time: as many as
	// eventd writes at once.
	outstanding = 64
)

// rate is what was written per second.
func (f *flow) rate() float64 { return float64(len(f.latencies)) / f.took.Seconds() }

// p99 is the time, in seconds, that all but one of a hundred occurrences were
// written within. Those that are not written yet have taken as long as they wait.
func (f *flow) p99() float64 {
	all := slices.Concat(f.latencies, f.waiting)
	slices.Sort(all)
	return timing.Percentile(all, 99).Seconds()
}

// flowThrough has a stream go through a pipeline, and measures it in windows that
// begin so long after it, which is longer than the windows before take.
func flowThrough(ctx context.Context, p *pipeline.Pipeline, namespaces []string, windows ...time.Duration) (flows []*flow, err error) {
	s := &stream{way: make([]time.Time, outstanding)}
	free := make(chan int, outstanding)
	for place := range outstanding {
		free <- place
	}
	began := time.Now()
	turn := time.NewTimer(windows[0]) // of a window to begin or end
	defer turn.Stop()
	for number := 0; ; number++ {
		select {
		case place := <-free:
			s.begin(place)
			p.Record(&occurrence.Occurrence{
				Event: eventIn(namespaces[place%len(namespaces)], number), Weight: 1,
				Settled: func(settlement occurrence.Settlement) {
					s.written(place, settlement)
					free <- place
				},
			})
		case now := <-turn.C:
			f := s.turn(now)
			if f == nil {
				turn.Reset(flowWindow)
				continue
			}
			if len(f.latencies) == 0 {
				return nil, fmt.Errorf("nothing was written in %v", f.took)
			}
			if flows = append(flows, f); len(flows) == len(windows) {
				return flows, nil
			}
			turn.Reset(time.Until(began.Add(windows[len(flows)])))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func eventIn(namespace string, number int) *corev1.Event {
	e := event(fmt.Sprint("web-", number), "")
	e.Namespace, e.InvolvedObject.Namespace = namespace, namespace
	return e
}

func (s *stream) begin(place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.way[place] = time.Now()
}

// written takes note that one has settled; it counts if something is measured, and
// it was not dropped.
func (s *stream) written(place int, settlement occurrence.Settlement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window != nil && settlement.Counted() {
		s.window.latencies = append(s.window.latencies, time.Since(s.way[place]))
	}
	s.way[place] = time.Time{}
}

// turn begins a window, or ends one and returns it.
func (s *stream) turn(now time.Time) (ended *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window == nil {
		s.window = &flow{since: now}
		return nil
	}
	ended, s.window = s.window, nil
	ended.took = now.Sub(ended.since)
	for _, recorded := range s.way {
		if !recorded.IsZero() {
			ended.waiting = append(ended.waiting, now.Sub(recorded))
		}
	}
	return ended
}
