package main

import (
	"context"
	"math"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// startReporters starts client-go's two kinds of recorders, as controllers do,
// and returns a function that hands each happening to the one it belongs to.
func startReporters(client kubernetes.Interface) (report func(happening), stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())

	classic := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		// The recorder's own filter lets 25 reports about an object pass, then
		// one in five minutes. To correlate is up to the server here, so all of
		// them are to reach it.
		BurstSize: math.MaxInt32,
		QPS:       math.MaxFloat32,
	}))
	classic.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})

	newStyle := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := newStyle.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		return nil, nil, err
	}

	report = func(h happening) {
		if h.action != "" {
			newStyle.NewRecorder(scheme.Scheme, h.by.Component).Eventf(h.object, nil, h.eventtype, h.reason, h.action, "%s", h.note)
			return
		}
		classic.NewRecorder(scheme.Scheme, h.by).Event(h.object, h.eventtype, h.reason, h.note)
	}
	return report, func() {
		newStyle.Shutdown()
		classic.Shutdown()
		cancel()
	}, nil
}
