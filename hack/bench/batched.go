package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
)

// batchedEvents is the number of Events in a batch.
const batchedEvents = 500

// batched compares the CPU of the leader for a repeat in a batch with that for one that is
// posted alone.
func batched() trial {
	const (
		turns = 5
		work  = "repeats in batches of 500: CPU of the leader for each"
	)
	return trial{works: []string{work}, run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
		var efforts [][]effort
		err := withReplicas(ctx, s, replicated, func(r *replicas) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			alone, together := pacedRepeats(names), repeatsOf(spread(names, pacedSeries, 0))
			efforts, err = warmedUp(turns,
				func(turn int) (effort, error) { return r.post(ctx, r.leader, named(alone, turn), r.leader) },
				func(turn int) (effort, error) { return r.postBatches(ctx, named(together, turns+1+turn)) },
			)
			return err
		})
		if err != nil {
			return nil, err
		}
		return []outcome{{
			work: work, unit: microseconds, eventd: of(efforts[1], effort.each),
			beside: "posted alone", other: of(efforts[0], effort.each), aim: atMostOfOther(0.1),
		}}, nil
	}}
}

// postBatches posts Events in batches to the leader, one after the other. The CPU is that of the leader.
func (r *replicas) postBatches(ctx context.Context, events []*corev1.Event) (e effort, err error) {
	c, err := connect(ctx, r.leader.Config(r.account))
	if err != nil {
		return e, err
	}
	defer c.close()
	return exertOther(len(events), r.cpu(ctx, r.leader), func() error {
		for namespace, all := range byNamespace(events) {
			for some := range slices.Chunk(all, batchedEvents) {
				if err := postBatch(ctx, c.CoreV1().RESTClient(), namespace, &corev1.EventList{Items: some}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func byNamespace(events []*corev1.Event) map[string][]corev1.Event {
	out := make(map[string][]corev1.Event)
	for _, e := range events {
		out[e.Namespace] = append(out[e.Namespace], *e)
	}
	return out
}

func postBatch(ctx context.Context, c rest.Interface, namespace string, list *corev1.EventList) error {
	var answer batch.Answer
	body, err := c.Post().Namespace(namespace).Resource("events").Param(batch.Parameter, "true").
		SetHeader("Accept", runtime.ContentTypeJSON).Body(list).DoRaw(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for _, other := range answer.Others {
		if other.Status.Status != metav1.StatusSuccess { // some may be written already, 201 and not 202
			return fmt.Errorf("an Event of a batch is answered %+v", other)
		}
	}
	return nil
}
