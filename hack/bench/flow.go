package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

// flow is a load that never ends: as soon as an occurrence is written, another one
// is recorded in the same namespace.
type flow struct {
	mu        sync.Mutex
	over      bool
	since     time.Time   // what counts begins here
	way       []time.Time // when those were recorded that are under way, else zero
	latencies []time.Duration
	took      time.Duration
}

const (
	flowWarmUp = time.Second
	flowWindow = 7 * time.Second
	// outstanding is how many occurrences are under way at any time: as many as
	// eventd writes at once.
	outstanding = 128
)

// rate is what was written per second.
func (f *flow) rate() float64 { return float64(len(f.latencies)) / f.took.Seconds() }

// p99 is the time, in seconds, that all but one of a hundred occurrences were
// written within. Those that are not written yet have taken as long as they wait.
func (f *flow) p99() float64 {
	all := slices.Clone(f.latencies)
	for _, recorded := range f.way {
		if !recorded.IsZero() {
			all = append(all, f.since.Add(f.took).Sub(recorded))
		}
	}
	slices.Sort(all)
	return all[(99*len(all)+99)/100-1].Seconds()
}

// flowThrough has a flow go through a pipeline for a while, and then measures it.
func flowThrough(ctx context.Context, p *pipeline.Pipeline, namespaces []string, warmUp time.Duration) (*flow, error) {
	f := &flow{way: make([]time.Time, outstanding), since: time.Now().Add(warmUp)}
	free := make(chan int, outstanding)
	for place := range outstanding {
		free <- place
	}
	end := time.NewTimer(warmUp + flowWindow)
	defer end.Stop()
	for number := 0; ; number++ {
		select {
		case place := <-free:
			f.begin(place)
			p.Record(&occurrence.Occurrence{
				Event: eventIn(namespaces[place%len(namespaces)], number), Weight: 1,
				Settled: func(s occurrence.Settlement) {
					f.written(place, s)
					free <- place
				},
			})
		case <-end.C:
			return f, f.end(time.Now())
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

func (f *flow) begin(place int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.way[place] = time.Now()
}

// written takes note that one has settled; it counts if it was in time, and was
// not dropped.
func (f *flow) written(place int, s occurrence.Settlement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	now := time.Now()
	if s.Counted() && now.After(f.since) {
		f.latencies = append(f.latencies, now.Sub(f.way[place]))
	}
	f.way[place] = time.Time{}
}

// end says so if there is nothing to tell of.
func (f *flow) end(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over, f.took = true, now.Sub(f.since)
	if len(f.latencies) == 0 {
		return fmt.Errorf("nothing was written in %v", f.took)
	}
	return nil
}
