package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/versions"
)

const (
	liveSeries = 100_000
	liveRounds = 3
	// liveBatch is below all limits of what is pending.
	liveBatch = 5000
)

// remembered are 100,000 series of kubelets that count by themselves, each of which repeats every minute. The
// correlator is given the time, and the sink is flushed in place of its deadlines; the rest is what runs in eventd. The
// apiserver is in this process, and keeps versions only.
func remembered() trial {
	const (
		requests = "100,000 live series, each repeated every 60 s: requests per occurrence"
		memory   = "100,000 live series: bytes of correlator and sink for each"
	)
	return trial{works: []string{requests, memory}, run: func(ctx context.Context, _ *apiserver) ([]outcome, error) {
		each, bytes, err := repeatLive(ctx)
		if err != nil {
			return nil, err
		}
		return []outcome{
			{work: requests, unit: ratio, eventd: figures{each}, aim: atMost(1.1, ratio)},
			{work: memory, unit: number, eventd: figures{bytes}, aim: atMost(100, number)},
		}, nil
	}}
}

func repeatLive(ctx context.Context) (requests, bytes float64, err error) {
	server, began, before := versions.New(liveSeries), time.Now(), liveBytes()
	o := app.NewOptions().Pipeline
	o.Sink.QPS, o.Sink.Acknowledge = math.Inf(1), sink.AcknowledgeCommitted
	c, err := correlator.New(o.Correlator)
	if err != nil {
		return 0, 0, err
	}
	ends := ledger.New()
	s, err := sink.New(ctx, server, ends, o.Sink)
	if err != nil {
		return 0, 0, err
	}
	for round := range liveRounds {
		at := began.Add(time.Duration(round) * time.Minute)
		for i := range liveSeries {
			reported := versions.PodEvent(i, int64(round+1), at)
			d := c.Correlate(reported, at)
			if s.Add(reported, d.Target, d.Delay); i%liveBatch == liveBatch-1 {
				s.Flush(ctx)
			}
		}
	}
	grown := liveBytes() - before
	runtime.KeepAlive(c)
	s.Close(ctx)
	if totals := ends.Totals(); totals.Written() != liveRounds*liveSeries {
		return 0, 0, fmt.Errorf("settled %v: a series was forgotten, and read", totals.Outcomes)
	}
	return float64(server.Requests()) / (liveRounds * liveSeries), float64(grown) / liveSeries, nil
}
