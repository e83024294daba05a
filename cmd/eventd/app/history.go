package app

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/lifecycle"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/trail"
)

// newMemory creates what queries are answered from: the history and the trail, each unless its flag is 0.
func (p *process) newMemory(cluster *rest.Config) (err error) {
	if p.options.TrailBytes > 0 {
		if p.trail, err = trail.New(trail.Options{MaxBytes: p.options.TrailBytes, Unreported: !p.options.Takes(), Registerer: p.registry}); err != nil {
			return err
		}
	}
	if p.options.HistoryBytes == 0 {
		return nil
	}
	metrics, err := history.NewMetrics(p.registry)
	if err != nil {
		return err
	}
	if p.history, err = history.New(history.Options{MaxBytes: p.options.HistoryBytes, Metrics: metrics}); err != nil {
		return err
	}
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent() + " history"
	source, err := observer.NewSource(config)
	if err != nil {
		return err
	}
	// The delivery of the leader has an observer of its own, which begins with each term: this one has
	// begun long before, and has no metrics. Its readers only wait for memory, so its buffer is small.
	p.observer, err = observer.New(observer.Options{Source: source, MaxBytes: observer.MinMaxBytes})
	return err
}

// historyComponents returns the parts that fill the history, on every replica.
func (p *process) historyComponents() []lifecycle.Component {
	if p.history == nil {
		return nil
	}
	return []lifecycle.Component{{Name: "history", Run: p.runHistory}}
}

// rankObserved has the trail rank what others than eventd write from now on, until ctx ends.
func (p *process) rankObserved(ctx context.Context) {
	r := p.observer.Reader(observer.Start{})
	defer r.Close()
	for {
		batch, err := r.Next(ctx, rankedBatch)
		if err != nil {
			return // the end of ctx
		}
		for _, e := range batch.Entries {
			p.trail.Observed(e.Version)
		}
	}
}

// rankedBatch is how many versions are read at once.
const rankedBatch = 256

// runHistory observes until ctx ends.
func (p *process) runHistory(ctx context.Context) error {
	observing, stop := context.WithCancel(ctx)
	var observed sync.WaitGroup
	observed.Go(func() { _ = p.observer.Run(observing) }) // it returns nil
	if p.trail != nil {
		observed.Go(func() { p.rankObserved(observing) })
	}
	defer observed.Wait()
	defer stop()
	return p.history.Run(ctx, p.observer)
}
