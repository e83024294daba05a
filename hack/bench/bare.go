package main

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// bareWays is how many requests the bare client makes at once: as many as eventd
// does at most.
const bareWays = 128

// byBareClient creates the very Events that eventd would, and does nothing else.
func byBareClient(ctx context.Context, config *rest.Config, l load) (effort, error) {
	events, err := eventsOf(ctx, l)
	if err != nil {
		return effort{}, err
	}
	c, err := connect(ctx, config)
	if err != nil {
		return effort{}, err
	}
	defer c.close()
	return exert(len(l.objects), func() (int, error) {
		if err := createAll(ctx, c, events, bareWays); err != nil {
			return 0, err
		}
		return len(events), nil
	})
}

// createAll makes so many requests at once.
func createAll(ctx context.Context, c *connection, events []*corev1.Event, atOnce int) error {
	queue := make(chan *corev1.Event, len(events))
	for _, e := range events {
		queue <- e
	}
	close(queue)
	errs := make([]error, atOnce)
	var ways sync.WaitGroup
	for way := range errs {
		ways.Go(func() {
			for e := range queue {
				if _, err := c.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
					errs[way] = err
					return
				}
			}
		})
	}
	ways.Wait()
	return errors.Join(errs...)
}
