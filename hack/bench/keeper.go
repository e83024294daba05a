package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

// eventsOf returns the Events that eventd creates for a load.
func eventsOf(ctx context.Context, l load) ([]*corev1.Event, error) {
	kept := &keeper{}
	p, err := startPipeline(kept, unlimited())
	if err != nil {
		return nil, err
	}
	err = load{objects: l.objects}.record(ctx, p.NewRecorder(scheme.Scheme, source))
	if err := errors.Join(err, p.Shutdown(ctx)); err != nil {
		return nil, err
	}
	if len(kept.events) != len(l.objects) {
		return nil, fmt.Errorf("eventd creates %d Events of %d occurrences", len(kept.events), len(l.objects))
	}
	return kept.events, nil
}

// keeper is a sink.Client that keeps what it is to create, and takes its time.
type keeper struct {
	takes  time.Duration
	mu     sync.Mutex
	events []*corev1.Event
}

func (k *keeper) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	if k.takes > 0 {
		if err := await.Sleep(ctx, k.takes); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, event)
	stored := event.DeepCopy()
	stored.UID, stored.ResourceVersion = "uid", "1"
	return stored, nil
}

func (k *keeper) Patch(context.Context, occurrence.API, string, string, []byte) (*corev1.Event, error) {
	return nil, errors.New("all Events are new")
}
