package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/hack/bench/internal/timing"
)

// repeated is one series that repeats for some seconds: what count is stored in
// the end, and how many writes that takes. Both sides' turns are made at once,
// since they load nothing.
func repeated() trial {
	const (
		count  = "one series, 1,000 repeats in 5 s: count stored 30 s later"
		writes = "one series, 1,000 repeats in 5 s: writes"
		delay  = "one series, 1,000 repeats in 5 s: time until it is stored"
	)
	return trial{
		works: []string{count, writes, delay},
		run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
			eventd, clientGo, err := repeat(ctx, s)
			if err != nil {
				return nil, err
			}
			stored := func(r *repetition) float64 { return float64(r.stored) }
			made := func(r *repetition) float64 { return float64(r.traffic.writes()) }
			took := func(r *repetition) float64 { return r.took.Seconds() }
			return []outcome{
				{work: count, unit: number, eventd: of(eventd, stored), beside: "client-go", other: of(clientGo, stored), aim: exactly(repeats, number)},
				{work: writes, unit: number, eventd: of(eventd, made), beside: "client-go", other: of(clientGo, made), aim: atMost(25, number)},
				{work: delay, unit: seconds, eventd: of(eventd, took)},
			}, nil
		},
	}
}

const (
	repeats     = 1000
	repeatsOver = 5 * time.Second
	// storedWithin is how long after the last repeat the count is to be stored.
	storedWithin = 30 * time.Second
)

// repetition is a side that has one series to write.
type repetition struct {
	recorder record.EventRecorder
	traffic  *traffic
	pod      *corev1.Pod

	stored int32
	took   time.Duration // from the last repeat until that was stored
}

func repeat(ctx context.Context, s *apiserver) (eventd, clientGo []*repetition, err error) {
	const turns = 3
	namespaces, err := s.namespaces(ctx, 2*turns)
	if err != nil {
		return nil, nil, err
	}
	for turn := range turns {
		r, err := startEventd(s.config(), unlimited())
		if err != nil {
			return nil, nil, err
		}
		defer r.stop()
		c, err := connect(ctx, s.config())
		if err != nil {
			return nil, nil, err
		}
		defer c.close()
		recorder, shutdown := startClientGo(c)
		defer shutdown()
		eventd = append(eventd, &repetition{recorder: r.recorder, traffic: r.traffic, pod: podIn(namespaces[2*turn], 0)})
		clientGo = append(clientGo, &repetition{recorder: recorder, traffic: c.traffic, pod: podIn(namespaces[2*turn+1], 0)})
	}
	both := append(append([]*repetition(nil), eventd...), clientGo...)
	err = timing.Paced(ctx, repeats, repeatsOver, func(int) {
		for _, r := range both {
			report(r.recorder, r.pod)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return eventd, clientGo, follow(ctx, s, both)
}

// follow watches what is stored for as long as there is time.
func follow(ctx context.Context, s *apiserver, all []*repetition) error {
	errs := make([]error, len(all))
	var following sync.WaitGroup
	for i, r := range all {
		following.Go(func() { errs[i] = r.follow(ctx, s) })
	}
	following.Wait()
	return errors.Join(errs...)
}

func (r *repetition) follow(ctx context.Context, s *apiserver) error {
	ended := time.Now()
	timeout := time.NewTimer(storedWithin)
	defer timeout.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		stored, err := storedCount(ctx, s, r.pod.Namespace)
		if err != nil {
			return err
		}
		if stored != r.stored {
			r.stored, r.took = stored, time.Since(ended)
		}
		select {
		case <-again.C:
		case <-timeout.C:
			return nil
		}
	}
}

func storedCount(ctx context.Context, s *apiserver, namespace string) (int32, error) {
	list, err := s.admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	if len(list.Items) != 1 {
		return 0, fmt.Errorf("there are %d Events of one series", len(list.Items))
	}
	return list.Items[0].Count, nil
}
