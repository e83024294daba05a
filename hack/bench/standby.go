package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/replica"
)

// throughStandby compares the CPU of both replicas for a repeat that is posted to the
// standby with the CPU of the leader for one that is posted to it.
func throughStandby() trial {
	const (
		turns = 5
		work  = "repeats at 2,000/s through a standby: CPU of both replicas for each"
	)
	return trial{works: []string{work}, run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
		var efforts [][]effort
		err := withReplicas(ctx, s, committed, func(r *replicas) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			events := pacedRepeats(names)
			efforts, err = warmedUp(turns,
				func(turn int) (effort, error) { return r.post(ctx, r.leader, named(events, turn), r.leader) },
				func(turn int) (effort, error) {
					return r.post(ctx, r.standby, named(events, turns+1+turn), r.leader, r.standby)
				},
			)
			return err
		})
		if err != nil {
			return nil, err
		}
		return []outcome{{
			work: work, unit: microseconds, eventd: of(efforts[1], effort.each),
			beside: "the leader alone", other: of(efforts[0], effort.each), aim: atMostOfOther(2.5),
		}}, nil
	}}
}

// post posts Events to a replica at a fixed rate. The CPU is that of some replicas.
func (r *replicas) post(ctx context.Context, to *replica.Replica, events []*corev1.Event, of ...*replica.Replica) (e effort, err error) {
	c, err := connect(ctx, to.Config(r.account))
	if err != nil {
		return e, err
	}
	defer c.close()
	return exertPaced(ctx, len(events), r.cpu(ctx, of...), func(i int) error { return create(ctx, c, events[i]) })
}

// cpu returns what some replicas have taken in all.
func (r *replicas) cpu(ctx context.Context, of ...*replica.Replica) func() (time.Duration, error) {
	var configs []*rest.Config
	for _, one := range of {
		configs = append(configs, one.Config(r.admin))
	}
	return func() (time.Duration, error) { return cpuOf(ctx, configs...) }
}
