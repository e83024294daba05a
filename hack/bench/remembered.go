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
		memory   = "100,000 live series: bytes of the sink for each"
		subjects = "100,000 live series: bytes of the correlator for each, which do not grow with their number"
	)
	return trial{works: []string{requests, memory, subjects}, run: func(ctx context.Context, _ *apiserver) ([]outcome, error) {
		each, sinkBytes, correlatorBytes, err := repeatLive(ctx)
		if err != nil {
			return nil, err
		}
		return []outcome{
			{work: requests, unit: ratio, eventd: figures{each}, aim: atMost(1.1, ratio)},
			{work: memory, unit: number, eventd: figures{sinkBytes}, aim: atMost(384, number)},
			{work: subjects, unit: number, eventd: figures{correlatorBytes}, aim: atMost(70, number)},
		}, nil
	}}
}

func repeatLive(ctx context.Context) (requests, sinkBytes, correlatorBytes float64, err error) {
	server, began := versions.New(liveSeries), time.Now()
	at := func(round int) time.Time { return began.Add(time.Duration(round) * time.Minute) }
	empty := liveBytes()
	o := app.NewOptions().Pipeline
	o.Sink.QPS, o.Sink.Acknowledge, o.Sink.MaxIdleSeries = math.Inf(1), sink.AcknowledgeCommitted, liveSeries
	c, err := correlator.New(o.Correlator)
	if err != nil {
		return 0, 0, 0, err
	}
	for i := range liveSeries {
		c.Correlate(versions.PodEvent(i, 1, at(0)), at(0))
	}
	before, ends := liveBytes(), ledger.New()
	s, err := sink.New(ctx, server, ends, o.Sink)
	if err != nil {
		return 0, 0, 0, err
	}
	for round := 1; round <= liveRounds; round++ {
		for i := range liveSeries {
			reported := versions.PodEvent(i, int64(round), at(round))
			d := c.Correlate(reported, at(round))
			if s.Add(reported, d.Target, d.Delay); i%liveBatch == liveBatch-1 {
				s.Flush(ctx)
			}
		}
	}
	grown := liveBytes() - before
	runtime.KeepAlive(c)
	s.Close(ctx)
	// The server cannot be read.
	if totals := ends.Totals(); totals.Written() < liveRounds*liveSeries {
		return 0, 0, 0, fmt.Errorf("settled %v: series were forgotten, and read", totals.Outcomes)
	}
	return float64(server.Requests()) / (liveRounds * liveSeries), float64(grown) / liveSeries, float64(before-empty) / liveSeries, nil
}
