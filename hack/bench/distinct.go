package main

import (
	"context"
	"fmt"
	"time"
)

// Rows that several trials share.
const (
	rowRate    = "distinct series recorded at once: written per second"
	rowShare   = "distinct series recorded at once: share that is written"
	rowExpense = "own CPU per written Event"
)

// besideBareClient compares rate and CPU time of creating Events of distinct series with
// a client that does nothing else. There are several namespaces, since eventd does not
// give its whole concurrency to one.
func besideBareClient() trial {
	const (
		turns       = 31 // short ones, so that both sides meet the same weather
		occurrences = 1500
	)
	return trial{
		works: []string{rowRate, rowExpense},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			efforts, err := takeTurns(ctx, s, turns, occurrences, 0, byEventd, byBareClient)
			if err != nil {
				return nil, err
			}
			eventd, bare := efforts[0], efforts[1]
			beside := fmt.Sprintf("bare client, %d at once", bareWays)
			return []outcome{
				{work: rowRate, unit: perSecond, eventd: of(eventd, effort.rate), beside: beside, other: of(bare, effort.rate), aim: ofOther(0.95)},
				{work: rowExpense, unit: milliseconds, eventd: of(eventd, effort.each), beside: beside, other: of(bare, effort.each)},
			}, nil
		},
	}
}

// besideClientGo compares the same with client-go's recorder, which drops what exceeds
// its queue, and writes one Event after the other.
func besideClientGo() trial {
	const (
		turns       = 3
		occurrences = 4000 // fit into eventd's queue
	)
	return trial{
		works: []string{rowRate, rowShare, rowExpense},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			efforts, err := takeTurns(ctx, s, turns, occurrences, 0, byEventd, byClientGo)
			if err != nil {
				return nil, err
			}
			eventd, clientGo := efforts[0], efforts[1]
			return []outcome{
				{work: rowRate, unit: perSecond, eventd: of(eventd, effort.rate), beside: "client-go", other: of(clientGo, effort.rate)},
				{work: rowShare, unit: percent, eventd: of(eventd, effort.share), beside: "client-go", other: of(clientGo, effort.share), aim: exactly(1, percent)},
				{work: rowExpense, unit: milliseconds, eventd: of(eventd, effort.each), beside: "client-go", other: of(clientGo, effort.each)},
			}, nil
		},
	}
}

// burstOf20000 is a storm such as the loss of a node causes: more in a moment than any
// queue holds.
func burstOf20000() trial {
	const (
		turns       = 2
		occurrences = 20_000
		over        = 200 * time.Millisecond
		share       = "20,000 distinct series in 0.2 s: share that is written"
		took        = "20,000 distinct series in 0.2 s: time until that is done"
	)
	return trial{
		works: []string{share, took},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			efforts, err := takeTurns(ctx, s, turns, occurrences, over, byEventd, byClientGo)
			if err != nil {
				return nil, err
			}
			eventd, clientGo := efforts[0], efforts[1]
			duration := func(e effort) float64 { return e.took.Seconds() }
			return []outcome{
				{work: share, unit: percent, eventd: of(eventd, effort.share), beside: "client-go", other: of(clientGo, effort.share), aim: exactly(1, percent)},
				{work: took, unit: seconds, eventd: of(eventd, duration)},
			}, nil
		},
	}
}
