package main

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/hack/bench/internal/timing"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
)

// inController compares what a broadcaster with default options takes of a controller: goroutines while there is
// nothing to write, and memory while the apiserver is away.
func inController() trial {
	const (
		idle = "a broadcaster that has nothing to write: goroutines"
		away = "a broadcaster that has recorded 20,000 Events while the apiserver is away: MiB"
	)
	return trial{works: []string{idle, away}, run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
		var goroutines, memory [2]figures
		for side, start := range []func(*rest.Config) (*broadcasting, error){broadcastByEventd, broadcastByClientGo} {
			for range 3 {
				n, err := idleGoroutines(ctx, s, start)
				if err != nil {
					return nil, err
				}
				bytes, err := memoryWhileAway(ctx, start)
				if err != nil {
					return nil, err
				}
				goroutines[side], memory[side] = append(goroutines[side], n), append(memory[side], bytes/(1<<20))
			}
		}
		return []outcome{
			{work: idle, unit: number, eventd: goroutines[0], beside: "client-go", other: goroutines[1], aim: atMost(4, number)},
			{work: away, unit: mebibytes, eventd: memory[0], beside: "client-go", other: memory[1], aim: atMost(16, mebibytes)},
		}, nil
	}}
}

func mebibytes(v float64) string { return fmt.Sprintf("%.1f", v) }

// broadcasting is a started broadcaster.
type broadcasting struct {
	record.EventBroadcaster
	recorder record.EventRecorder
	close    func() // its connections
}

func broadcastByEventd(config *rest.Config) (*broadcasting, error) {
	return broadcast(sink.ConfigFor(config), pipeline.NewRecordBroadcaster())
}

func broadcastByClientGo(config *rest.Config) (*broadcasting, error) {
	config = rest.CopyConfig(config)
	config.Dial = new(net.Dialer).DialContext // connections of its own
	return broadcast(config, record.NewBroadcaster())
}

func broadcast(config *rest.Config, b record.EventBroadcaster) (*broadcasting, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &broadcasting{b, b.NewRecorder(scheme.Scheme, source), http.CloseIdleConnections}, nil
}

// idleGoroutines is what a broadcaster has after it has written an Event, its connection included: the least in a
// second, in which workers end.
func idleGoroutines(ctx context.Context, s *apiserver, start func(*rest.Config) (*broadcasting, error)) (float64, error) {
	names, err := s.namespaces(ctx, 1)
	if err != nil {
		return 0, err
	}
	before := settledGoroutines(ctx)
	b, err := start(s.config())
	if err != nil {
		return 0, err
	}
	report(b.recorder, podIn(names[0], 0))
	err = await.Success(ctx, time.Minute, func() error {
		_, err := storedCount(ctx, s, names[0])
		return err
	})
	n := settledGoroutines(ctx) - before
	b.Shutdown()
	b.close()
	return float64(n), err
}

func settledGoroutines(ctx context.Context) int {
	least := runtime.NumGoroutine()
	for range 20 {
		if await.Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
		least = min(least, runtime.NumGoroutine())
	}
	return least
}

// memoryWhileAway is by how much the heap grows while a broadcaster records and nobody answers.
func memoryWhileAway(ctx context.Context, start func(*rest.Config) (*broadcasting, error)) (float64, error) {
	const events = 20_000
	before := liveBytes()
	b, err := start(&rest.Config{Host: "https://127.0.0.1:1", QPS: -1})
	if err != nil {
		return 0, err
	}
	defer b.close()
	err = timing.Paced(ctx, events, 2*time.Second, func(i int) {
		report(b.recorder, podIn(fmt.Sprint("team-", i%50), i))
	})
	// What is on its way is dropped at the limits, too.
	if err == nil {
		err = await.Sleep(ctx, time.Second)
	}
	grown := liveBytes() - before
	b.Shutdown()
	return float64(grown), err
}

func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools keep what they had for one more
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
