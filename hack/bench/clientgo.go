package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// byClientGo counts the created Events by the apiserver's answers. client-go does not
// report what it drops, so the end is when it has written a marker, which was recorded
// last.
func byClientGo(ctx context.Context, config *rest.Config, l load) (effort, error) {
	c, err := connect(ctx, config)
	if err != nil {
		return effort{}, err
	}
	defer c.close()
	recorder, shutdown := startClientGo(c)
	defer shutdown()
	return exert(len(l.objects), func() (int, error) {
		if err := l.record(ctx, recorder); err != nil {
			return 0, err
		}
		if err := recordMarker(ctx, recorder, c.traffic); err != nil {
			return 0, err
		}
		return c.traffic.createdOutside(markerNamespace), nil
	})
}

func startClientGo(c *connection) (recorder record.EventRecorder, shutdown func()) {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.CoreV1().Events("")})
	return b.NewRecorder(scheme.Scheme, source), b.Shutdown
}

// recordMarker records one again until it was written: it is dropped while the queue is
// full.
func recordMarker(ctx context.Context, r record.EventRecorder, t *traffic) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	marker := podIn(markerNamespace, int(time.Now().UnixNano()%1e9))
	before := t.createdIn(markerNamespace)
	for t.createdIn(markerNamespace) == before {
		report(r, marker)
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.New("client-go has not emptied its queue in time")
		}
	}
	return nil
}

// markerNamespace is one that exists and that no load is in.
const markerNamespace = metav1.NamespaceDefault
