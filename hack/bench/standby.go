package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/test/replica"
)

const (
	standbySeries = 200
	standbyRate   = 2000 // repeats per second
	standbyOver   = 3 * time.Second
	standbyAtOnce = 64 // requests, if they are slow
)

// throughStandby compares the CPU of both replicas for a repeat that is posted to the
// standby with the CPU of the leader for one that is posted to it.
func throughStandby() trial {
	const (
		turns = 5
		work  = "repeats at 2,000/s through a standby: CPU of both replicas for each"
	)
	return trial{works: []string{work}, run: func(ctx context.Context, s *apiserver) (rows []outcome, err error) {
		var through, alone []effort
		err = withReplicas(ctx, s, committed, func(r *replicas) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			events := repeatsOf(spread(names, standbySeries, 0))
			// The first turn is a warm-up: reviews, connections, the series.
			for turn := range turns + 1 {
				some := named(events[:standbyRate*int(standbyOver/time.Second)], turn)
				a, err := r.post(ctx, r.leader, some, r.leader)
				if err != nil {
					return err
				}
				b, err := r.post(ctx, r.standby, named(some, turn), r.leader, r.standby)
				if err != nil {
					return err
				}
				if turn > 0 {
					alone, through = append(alone, a), append(through, b)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return []outcome{{
			work: work, unit: microseconds, eventd: of(through, effort.each),
			beside: "the leader alone", other: of(alone, effort.each), aim: atMostOfOther(1.5),
		}}, nil
	}}
}

// named are copies of Events with other names.
func named(events []*corev1.Event, turn int) []*corev1.Event {
	out := make([]*corev1.Event, 0, len(events))
	for _, e := range events {
		e = e.DeepCopy()
		e.Name = fmt.Sprintf("%s.%d", e.Name, turn)
		out = append(out, e)
	}
	return out
}

// post posts Events to a replica at a fixed rate. The CPU is that of some replicas.
func (r *replicas) post(ctx context.Context, to *replica.Replica, events []*corev1.Event, of ...*replica.Replica) (e effort, err error) {
	c, err := connect(ctx, to.Config(r.account))
	if err != nil {
		return e, err
	}
	defer c.close()
	before, err := r.cpu(ctx, of)
	if err != nil {
		return e, err
	}
	began := time.Now()
	if err := sendPaced(ctx, len(events), standbyOver, standbyAtOnce, func(i int) error { return create(ctx, c, events[i]) }); err != nil {
		return e, err
	}
	after, err := r.cpu(ctx, of)
	return effort{occurrences: len(events), written: len(events), took: time.Since(began), cpu: after - before}, err
}

// cpu is what some replicas have taken in all.
func (r *replicas) cpu(ctx context.Context, of []*replica.Replica) (total time.Duration, err error) {
	for _, one := range of {
		cpu, err := cpuOf(ctx, one.Config(r.admin))
		if err != nil {
			return 0, err
		}
		total += cpu
	}
	return total, nil
}

func microseconds(v float64) string { return fmt.Sprintf("%.0f µs", 1e6*v) }
