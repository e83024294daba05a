package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/hack/bench/internal/timing"
	"github.com/eventd/eventd/test/metrics"
)

// Some trials compare the CPU of processes for repeats that are sent to them at a fixed rate.
const (
	pacedSeries = 200
	pacedRate   = 2000 // repeats per second
	pacedOver   = 3 * time.Second
	pacedAtOnce = 64 // requests, if they are slow
)

// pacedRepeats are as many Events as are sent in a turn.
func pacedRepeats(namespaces []string) []*corev1.Event {
	return repeatsOf(spread(namespaces, pacedSeries, 0))[:pacedRate*int(pacedOver/time.Second)]
}

// named are copies of Events with other names: a known name would count nothing.
func named(events []*corev1.Event, turn int) []*corev1.Event {
	out := make([]*corev1.Event, 0, len(events))
	for _, e := range events {
		e = e.DeepCopy()
		e.Name = fmt.Sprintf("%s.%d", e.Name, turn)
		out = append(out, e)
	}
	return out
}

// warmedUp lets sides take turns, and returns the efforts of each. It leaves out those of a first turn, number 0:
// a warm-up for connections, reviews and series.
func warmedUp(turns int, sides ...func(turn int) (effort, error)) ([][]effort, error) {
	efforts := make([][]effort, len(sides))
	for turn := range turns + 1 {
		for i, side := range sides {
			e, err := side(turn)
			if err != nil {
				return nil, err
			}
			if turn > 0 {
				efforts[i] = append(efforts[i], e)
			}
		}
	}
	return efforts, nil
}

// exertOther measures send, which has other processes handle n occurrences, and their CPU.
func exertOther(n int, cpu func() (time.Duration, error), send func() error) (e effort, err error) {
	before, err := cpu()
	if err != nil {
		return e, err
	}
	began := time.Now()
	if err := send(); err != nil {
		return e, err
	}
	after, err := cpu()
	return effort{occurrences: n, written: n, took: time.Since(began), cpu: after - before}, err
}

// exertPaced sends n requests over pacedOver, and measures the CPU of the processes that answer them.
func exertPaced(ctx context.Context, n int, cpu func() (time.Duration, error), send func(int) error) (effort, error) {
	return exertOther(n, cpu, func() error { return sendPaced(ctx, n, send) })
}

// sendPaced sends n requests evenly over pacedOver.
func sendPaced(ctx context.Context, n int, send func(int) error) error {
	errs := make(chan error, n)
	slots := make(chan struct{}, pacedAtOnce)
	err := timing.Paced(ctx, n, pacedOver, func(i int) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			errs <- send(i)
		}()
	})
	if err != nil {
		return err
	}
	for range n {
		err = errors.Join(err, <-errs)
	}
	return err
}

// cpuOf is what processes have taken in all, by their metrics.
func cpuOf(ctx context.Context, of ...*rest.Config) (total time.Duration, err error) {
	for _, config := range of {
		m, err := metrics.Read(ctx, config)
		if err != nil {
			return 0, err
		}
		total += time.Duration(m.Sum("process_cpu_seconds_total") * float64(time.Second))
	}
	return total, nil
}

func microseconds(v float64) string { return fmt.Sprintf("%.0f µs", 1e6*v) }
