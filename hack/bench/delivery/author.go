package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/hack/bench/internal/timing"
)

// author writes Events directly to the apiserver. Its methods are for one goroutine.
type author struct {
	client     kubernetes.Interface
	namespaces []string
	stored     *stored
	probes     int // so far
}

// newAuthor connects by protobuf, without a rate limit, over a connection of its own.
func newAuthor(config *rest.Config, namespaces []string) (*author, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.Dial = new(net.Dialer).DialContext // client-go shares no connections then
	client, err := kubernetes.NewForConfig(config)
	return &author{client: client, namespaces: namespaces, stored: newStored()}, err
}

// put stores one version.
func (a *author) put(ctx context.Context, v version) error {
	namespace := a.namespaces[v.event%len(a.namespaces)]
	events := a.client.CoreV1().Events(namespace)
	var err error
	if v.number == 1 || v.event == 0 {
		_, err = events.Create(ctx, v.object(namespace), metav1.CreateOptions{})
	} else {
		_, err = events.Patch(ctx, v.name(), types.MergePatchType, v.patch(), metav1.PatchOptions{})
	}
	return err
}

// probe stores an Event that is not counted.
func (a *author) probe(ctx context.Context) error {
	a.probes++
	return a.put(ctx, version{number: a.probes})
}

const (
	// ways is how many versions are written at once. Those of one Event go the same way.
	ways = 32
	// backlog is how many versions of a way can be late. Then the stream is slower.
	backlog = 1024
)

// write stores all versions of a plan at its pace, and returns how long that took.
func (a *author) write(ctx context.Context, p plan) (took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var queues [ways]chan version
	var working sync.WaitGroup
	for way := range queues {
		queues[way] = make(chan version, backlog)
		working.Go(func() {
			for v := range queues[way] {
				if ctx.Err() != nil {
					continue
				}
				if err := a.put(ctx, v); err != nil {
					cancel(fmt.Errorf("writing %+v: %w", v, err))
					continue
				}
				a.stored.add(v, time.Now())
			}
		})
	}
	began, order := time.Now(), p.order()
	_ = timing.Paced(ctx, len(order), p.over, func(i int) { queues[order[i].event%ways] <- order[i] }) // is the cause of ctx
	for _, queue := range queues {
		close(queue)
	}
	working.Wait()
	return time.Since(began), context.Cause(ctx)
}
