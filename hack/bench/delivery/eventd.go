package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
)

// eventd is one process that leads, or several replicas.
type eventd struct {
	cluster  *cluster
	options  replica.Options
	admin    *rest.Config
	replicas []*replica.Replica
	leader   int // of the replicas
	starts   int // so far
}

// shortLease has a leader that was killed replaced within three seconds.
var shortLease = []string{
	"--leader-elect", "--peer-audience=eventd",
	"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
}

// startEventd starts one process that does not elect, or several replicas, with a receiver for each
// destination.
func startEventd(replicas int) start {
	return func(ctx context.Context, c *cluster, to ...*destination) (side, error) {
		return newEventd(ctx, c, replicas, to)
	}
}

func newEventd(ctx context.Context, c *cluster, replicas int, to []*destination) (*eventd, error) {
	config, err := c.file("configuration.yaml", eventdConfig(to))
	if err != nil {
		return nil, err
	}
	e := &eventd{cluster: c, admin: c.plane.Config(), options: replica.Options{
		Binary: *eventdBinary, Credentials: c.account,
		Flags: []string{"--role=observe", "--config=" + config, "--cluster-name=bench"},
	}}
	if replicas > 1 {
		e.options.PeerToken = c.peer.BearerToken
		e.options.Flags = append(e.options.Flags, shortLease...)
	} else {
		e.options.Flags = append(e.options.Flags, "--leader-elect=false")
	}
	for range replicas {
		started, err := e.start(ctx)
		if err != nil {
			e.end()
			return nil, err
		}
		e.replicas = append(e.replicas, started)
	}
	if replicas > 1 {
		err = e.awaitLeader(ctx)
	}
	if err != nil {
		e.end()
	}
	return e, err
}

// eventdConfig has a receiver for each destination, with defaults.
func eventdConfig(to []*destination) string {
	var b strings.Builder
	b.WriteString("apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\nreceivers:\n")
	for _, d := range to {
		fmt.Fprintf(&b, "- name: %s\n  otlp: {protocol: http, endpoint: %q, insecure: true}\n", d.name, d.url()+"/v1/logs")
	}
	return b.String()
}

func (e *eventd) start(ctx context.Context) (*replica.Replica, error) {
	e.starts++
	options := e.options
	options.Dir = filepath.Join(e.cluster.dir, fmt.Sprint("eventd-", e.starts))
	return replica.Start(ctx, options)
}

// awaitLeader waits until one of the replicas leads.
func (e *eventd) awaitLeader(ctx context.Context) error {
	return await.Success(ctx, time.Minute, func() error {
		for i, r := range e.replicas {
			if r.Ended() {
				continue
			}
			m, err := r.Metrics(ctx, e.admin)
			if err != nil {
				return err
			}
			if m.Sum("eventd_election_leading") == 1 {
				e.leader = i
				return nil
			}
		}
		return errors.New("no replica leads")
	})
}

func (e *eventd) usage() (usage, error) { return usageOf(e.replicas[e.leader].PID()) }

// kill waits for another leader, and then starts the former one again.
func (e *eventd) kill(ctx context.Context) error {
	former := e.leader
	if e.replicas[former].Ended() {
		return e.replicas[former].Failure("ended by itself")
	}
	e.replicas[former].Kill()
	if err := e.awaitLeader(ctx); err != nil {
		return err
	}
	started, err := e.start(ctx)
	if err == nil {
		e.replicas[former] = started
	}
	return err
}

func (e *eventd) end() {
	for _, r := range e.replicas {
		r.Kill()
	}
}

// metrics are those of the leader.
func (e *eventd) metrics(ctx context.Context) (metrics.Metrics, error) {
	return e.replicas[e.leader].Metrics(ctx, e.admin)
}
