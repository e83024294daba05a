package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// Flags of the replicas.
const (
	replicated = "--acknowledge=replicated"
	committed  = "--acknowledge=committed"
)

const (
	deferredSeries = 200
	deferredRounds = 100 // each with one occurrence of all series
	deferredAtOnce = 16  // requests
)

// acknowledged compares what an occurrence with a deferred write costs the leader that
// acknowledges it when the standby holds it, and at once.
func acknowledged() trial {
	const (
		turns = 4
		work  = "20,000 occurrences of 200 series: CPU of the leader for each with a deferred write"
	)
	return trial{works: []string{work}, run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
		efforts, err := takeTurns(ctx, s, turns, deferredSeries, 0, deferring(s, replicated), deferring(s, committed))
		if err != nil {
			return nil, err
		}
		return []outcome{{
			work: work, unit: milliseconds, eventd: of(efforts[0], effort.each),
			beside: committed, other: of(efforts[1], effort.each), aim: atMostOfOther(1.15),
		}}, nil
	}}
}

// deferring is the side of a leader with a flag: its CPU, and the occurrences with a
// deferred write.
func deferring(s *apiserver, flag string) side {
	return func(ctx context.Context, _ *rest.Config, l load) (e effort, err error) {
		err = withReplicas(ctx, s, flag, func(both *replicas) error {
			c, err := connect(ctx, both.leader.Config(both.admin))
			if err != nil {
				return err
			}
			defer c.close()
			before, err := both.leader.Metrics(ctx, both.admin)
			if err != nil {
				return err
			}
			if err := createAll(ctx, c, repeatsOf(l), deferredAtOnce); err != nil {
				return err
			}
			after, err := both.leader.Metrics(ctx, both.admin)
			grown := func(metric string) float64 { return after.Sum(metric) - before.Sum(metric) }
			e.written = int(grown("eventd_correlator_deferred_total"))
			e.cpu = time.Duration(grown("process_cpu_seconds_total") * float64(time.Second))
			return err
		})
		return e, err
	}
}

// repeatsOf are occurrences of one series of each object, under names of their own.
func repeatsOf(l load) (events []*corev1.Event) {
	for round := range deferredRounds {
		for i, pod := range l.objects {
			e := eventIn(pod.Namespace, i)
			e.Name = fmt.Sprintf("%s.%x", e.InvolvedObject.Name, round)
			events = append(events, e)
		}
	}
	return events
}
