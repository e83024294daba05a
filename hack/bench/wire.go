package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/hack/bench/internal/timing"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
)

const (
	wireSeries = 200
	wireRate   = 2000 // repeats per second
	wireOver   = 3 * time.Second
	wireAtOnce = 64
	// storedRate is what the apiserver writes beside a client on a small machine.
	storedRate = 300
)

// besideStoredWrite compares what a repeat over HTTP/2 and TLS costs eventd with what a stored write costs the
// apiserver and etcd, which are one process here, and a posted one with what it costs a server that does nothing. The
// repeat is posted, or is the patch of a client that counts by itself. One replica runs alone.
func besideStoredWrite() trial {
	const (
		turns  = 5
		post   = "a repeat by POST over HTTP/2 and TLS: CPU of eventd"
		patch  = "a repeat by PATCH of a client that counts: CPU of eventd"
		beside = "a stored write: CPU of apiserver and etcd"
		served = "a repeat by POST, beside HTTP/2 and TLS alone: CPU of eventd"
		bare   = "a Go server that only reads and answers"
	)
	return trial{works: []string{post, patch, served}, run: func(ctx context.Context, s *apiserver) ([]outcome, error) {
		var posts, patches, writes, answers []effort
		err := withOne(ctx, s, func(r *replica.Replica, admin *rest.Config) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			reported := repeatsOf(spread(names, wireSeries, 0))[:int(wireOver/time.Second)*wireRate]
			through, err := connect(ctx, r.Config(admin))
			if err != nil {
				return err
			}
			defer through.close()
			direct, err := connect(ctx, s.config())
			if err != nil {
				return err
			}
			defer direct.close()
			server, err := startBareServer(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = server.stop() }()
			toServer, err := connect(ctx, server.config)
			if err != nil {
				return err
			}
			defer toServer.close()
			cpuOfServer := func() (time.Duration, error) { return server.cpu(ctx, toServer) }
			cpuOfEventd := func() (time.Duration, error) { return cpuOf(ctx, r.Config(admin)) }
			cpuOfAPIServer := func() (time.Duration, error) { return cpuOf(ctx, s.config()) }
			// The first turn is a warm-up: reviews, connections, the series.
			for turn := range turns + 1 {
				posted := named(reported, turn)
				a, err := exertOf(ctx, cpuOfEventd, len(posted), func(i int) error { return create(ctx, through, posted[i]) })
				if err != nil {
					return err
				}
				// The Event that each series was posted under counts on.
				b, err := exertOf(ctx, cpuOfEventd, len(posted), func(i int) error {
					return count(ctx, through, posted[i%wireSeries], 2+i/wireSeries)
				})
				if err != nil {
					return err
				}
				stored := named(spreadEvents(names, storedRate*int(wireOver/time.Second), turn), turn)
				c, err := exertOf(ctx, cpuOfAPIServer, len(stored), func(i int) error { return create(ctx, direct, stored[i]) })
				if err != nil {
					return err
				}
				d, err := exertOf(ctx, cpuOfServer, len(posted), func(i int) error { return create(ctx, toServer, posted[i]) })
				if err != nil {
					return err
				}
				if turn > 0 {
					posts, patches, writes, answers = append(posts, a), append(patches, b), append(writes, c), append(answers, d)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		row := func(work string, efforts []effort) outcome {
			return outcome{
				work: work, unit: microseconds, eventd: of(efforts, effort.each),
				beside: beside, other: of(writes, effort.each), aim: atMostOfOther(0.05),
			}
		}
		floor := outcome{
			work: served, unit: microseconds, eventd: of(posts, effort.each), beside: bare, other: of(answers, effort.each),
		}
		return []outcome{row(post, posts), row(patch, patches), floor}, nil
	}}
}

// withOne calls do with a replica that runs alone, with the rights of deploy/ and no limit of requests per second.
func withOne(ctx context.Context, s *apiserver, do func(*replica.Replica, *rest.Config) error) (err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	account, err := s.plane.TokenConfig(ctx, metav1.NamespaceSystem, "eventd")
	if err := errors.Join(err, s.plane.Apply(ctx, "deploy")); err != nil {
		return err
	}
	r, err := replica.Start(ctx, replica.Options{
		Binary: *binary, Credentials: account, Dir: dir, Flags: []string{"--leader-elect=false", "--kube-api-qps=unlimited"},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, r.Stop(ctx))
	}()
	return do(r, s.config())
}

// spreadEvents are Events of distinct series.
func spreadEvents(namespaces []string, n, turn int) (events []*corev1.Event) {
	for i := range n {
		events = append(events, eventIn(namespaces[i%len(namespaces)], 1_000_000*(turn+1)+i))
	}
	return events
}

func create(ctx context.Context, c *connection, e *corev1.Event) error {
	_, err := c.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	return err
}

// count patches the count of a posted Event, as client-go does.
func count(ctx context.Context, c *connection, e *corev1.Event, n int) error {
	patch := fmt.Appendf(nil, `{"count":%d,"lastTimestamp":%q}`, n, time.Now().UTC().Format(time.RFC3339))
	_, err := c.CoreV1().Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// exertOf sends n requests over a time, and measures the CPU of the process that answers them.
func exertOf(ctx context.Context, cpu func() (time.Duration, error), n int, send func(int) error) (e effort, err error) {
	before, err := cpu()
	if err != nil {
		return e, err
	}
	began := time.Now()
	if err := sendPaced(ctx, n, wireOver, wireAtOnce, send); err != nil {
		return e, err
	}
	after, err := cpu()
	return effort{occurrences: n, written: n, took: time.Since(began), cpu: after - before}, err
}

// sendPaced sends n requests evenly over a time, with at most so many at once.
func sendPaced(ctx context.Context, n int, over time.Duration, atOnce int, send func(int) error) error {
	errs := make(chan error, n)
	slots := make(chan struct{}, atOnce)
	err := timing.Paced(ctx, n, over, func(i int) {
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

// cpuOf is what a process has taken, by its metrics.
func cpuOf(ctx context.Context, config *rest.Config) (time.Duration, error) {
	m, err := metrics.Read(ctx, config)
	return time.Duration(m.Sum("process_cpu_seconds_total") * float64(time.Second)), err
}
