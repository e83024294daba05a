package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/test/replica"
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
	return trial{works: []string{work}, run: func(ctx context.Context, s *apiserver) (rows []outcome, err error) {
		var together, alone []effort
		err = withReplicas(ctx, s, replicated, func(r *replicas) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			events := repeatsOf(spread(names, standbySeries, 0))
			// The first turn is a warm-up: reviews, connections, the series.
			for turn := range turns + 1 {
				a, err := r.post(ctx, r.leader, named(events[:standbyRate*int(standbyOver/time.Second)], turn), r.leader)
				if err != nil {
					return err
				}
				b, err := r.postBatches(ctx, r.leader, named(events, turns+1+turn), r.leader)
				if err != nil {
					return err
				}
				if turn > 0 {
					alone, together = append(alone, a), append(together, b)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return []outcome{{
			work: work, unit: microseconds, eventd: of(together, effort.each),
			beside: "posted alone", other: of(alone, effort.each), aim: atMostOfOther(0.1),
		}}, nil
	}}
}

// postBatches posts Events in batches to a replica, one after the other. The CPU is that of some
// replicas.
func (r *replicas) postBatches(ctx context.Context, to *replica.Replica, events []*corev1.Event, of ...*replica.Replica) (e effort, err error) {
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
	lists := make(map[string]*corev1.EventList)
	for _, event := range events {
		list := lists[event.Namespace]
		if list == nil {
			list = &corev1.EventList{}
			lists[event.Namespace] = list
		}
		if list.Items = append(list.Items, *event); len(list.Items) == batchedEvents {
			if err := postBatch(ctx, c.CoreV1().RESTClient(), event.Namespace, list); err != nil {
				return e, err
			}
			delete(lists, event.Namespace)
		}
	}
	for namespace, list := range lists {
		err = errors.Join(err, postBatch(ctx, c.CoreV1().RESTClient(), namespace, list))
	}
	after, cpuErr := r.cpu(ctx, of)
	e = effort{occurrences: len(events), written: len(events), took: time.Since(began), cpu: after - before}
	return e, errors.Join(err, cpuErr)
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
