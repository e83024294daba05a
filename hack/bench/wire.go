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

	"github.com/eventd/eventd/test/replica"
)

// storedRate is what the apiserver writes beside a client on a small machine.
const storedRate = 300

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
		var efforts [][]effort
		err := withOne(ctx, s, func(r *replica.Replica, admin *rest.Config) error {
			names, err := s.namespaces(ctx, loadNamespaces)
			if err != nil {
				return err
			}
			reported := pacedRepeats(names)
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
			efforts, err = warmedUp(turns,
				func(turn int) (effort, error) {
					posted := named(reported, turn)
					return exertPaced(ctx, len(posted), cpuOfEventd, func(i int) error { return create(ctx, through, posted[i]) })
				},
				func(turn int) (effort, error) {
					// The Event that each series was posted under counts on.
					posted := named(reported[:pacedSeries], turn)
					return exertPaced(ctx, len(reported), cpuOfEventd, func(i int) error {
						return count(ctx, through, posted[i%pacedSeries], 2+i/pacedSeries)
					})
				},
				func(turn int) (effort, error) {
					stored := named(spreadEvents(names, storedRate*int(pacedOver/time.Second), turn), turn)
					return exertPaced(ctx, len(stored), cpuOfAPIServer, func(i int) error { return create(ctx, direct, stored[i]) })
				},
				func(turn int) (effort, error) {
					posted := named(reported, turn)
					return exertPaced(ctx, len(posted), cpuOfServer, func(i int) error { return create(ctx, toServer, posted[i]) })
				},
			)
			return err
		})
		if err != nil {
			return nil, err
		}
		row := func(work string, own []effort) outcome {
			return outcome{
				work: work, unit: microseconds, eventd: of(own, effort.each),
				beside: beside, other: of(efforts[2], effort.each), aim: atMostOfOther(0.16),
			}
		}
		// The bare server takes 5 to 6 % of a stored write.
		floor := outcome{
			work: served, unit: microseconds, eventd: of(efforts[0], effort.each),
			beside: bare, other: of(efforts[3], effort.each), aim: atMostOfOther(2),
		}
		return []outcome{row(post, efforts[0]), row(patch, efforts[1]), floor}, nil
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
	if err := errors.Join(err, replica.Grant(ctx, s.plane, "deploy")); err != nil {
		return err
	}
	r, err := replica.Start(ctx, replica.Options{
		Binary: *binary, Credentials: account, Dir: dir,
		// A turn posts 6,000 names, of which the next one patches the first.
		Flags: []string{"--role=intake", "--leader-elect=false", "--kube-api-qps=unlimited", "--max-client-names=20000"},
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
