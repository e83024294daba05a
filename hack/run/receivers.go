package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/test/metrics"
)

//go:embed configuration.yaml
var configuration string

// placeholder is the address in configuration.yaml.
const placeholder = "http://127.0.0.1:4318"

// clusterName is in every record that is delivered.
const clusterName = "demo"

// delivery is what eventd delivers by configuration.yaml.
type delivery struct {
	receivers, routes []string
	rules             *rules.Set
}

func readConfiguration() (*delivery, error) {
	config, err := v1alpha1.Load([]byte(configuration))
	if err != nil {
		return nil, err
	}
	d := &delivery{routes: []string{""}} // no route matches
	for _, r := range config.Receivers {
		d.receivers = append(d.receivers, r.Name)
	}
	for _, r := range config.Routes {
		d.routes = append(d.routes, r.Name)
	}
	d.rules, err = rules.Compile(config)
	return d, err
}

// writeConfiguration writes the file that the replicas read, and returns the flags for it.
func writeConfiguration(file string, to *destination) (flags []string, err error) {
	content := strings.ReplaceAll(configuration, placeholder, to.url)
	return []string{"--config=" + file, "--cluster-name=" + clusterName}, os.WriteFile(file, []byte(content), 0o600)
}

// deliveries are the account of one receiver, in versions of Events, over all replicas.
type deliveries struct {
	observed, delivered, superseded, givenUp, handedOver, pending int64
	filtered                                                      map[string]int64 // by route
	lag                                                           time.Duration
}

// add returns the sum with what a replica reports of a receiver.
func (a deliveries) add(m metrics.Metrics, receiver string, routes []string) deliveries {
	of := func(name string, labels ...string) int64 {
		return int64(m.Sum("eventd_receiver_"+name, append(labels, "receiver="+receiver)...))
	}
	a.observed += of("observed_versions_total")
	a.delivered += of("delivered_versions_total")
	a.superseded += of("superseded_versions_total")
	a.givenUp += of("given_up_versions_total")
	a.handedOver += of("handed_over_versions_total")
	a.pending += of("pending_versions")
	filtered := make(map[string]int64, len(routes))
	for _, route := range routes {
		filtered[route] = a.filtered[route] + of("filtered_versions_total", "route="+route)
	}
	a.filtered = filtered
	lag := m.Sum("eventd_receiver_lag_seconds", "receiver="+receiver)
	a.lag = max(a.lag, time.Duration(lag*float64(time.Second)))
	return a
}

// settled reports whether nothing is pending, and everything that was observed is accounted for.
func (a deliveries) settled() bool {
	sum := a.delivered + a.superseded + a.givenUp + a.handedOver
	for _, n := range a.filtered {
		sum += n
	}
	return a.pending == 0 && a.observed == sum
}

// String is the equation that holds at every quiet moment. What did not happen is left out of it.
func (a deliveries) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "observed %d = delivered %d", a.observed, a.delivered)
	for _, route := range slices.Sorted(maps.Keys(a.filtered)) {
		if n := a.filtered[route]; n != 0 {
			fmt.Fprintf(&b, " + filtered{%s} %d", route, n)
		}
	}
	for _, other := range []struct {
		name string
		n    int64
	}{{"superseded", a.superseded}, {"given_up", a.givenUp}, {"handed_over", a.handedOver}} {
		if other.n != 0 {
			fmt.Fprintf(&b, " + %s %d", other.name, other.n)
		}
	}
	fmt.Fprintf(&b, " + pending %d", a.pending)
	return b.String()
}

// difference returns why a receiver's account, what has arrived and what is stored do not agree, or
// nil if they do. events is the number of stored Events that the receiver is to get.
func (d *delivery) difference(receiver string, a deliveries, to *destination, stored []*corev1.Event) (events int, err error) {
	if !a.settled() {
		return 0, errors.New("not everything that was observed is settled")
	}
	arrived, repeated, latest := to.arrivals(receiver)
	// A request without an answer is sent again: some may have arrived twice.
	if arrived < a.delivered || arrived-repeated > a.delivered {
		return 0, fmt.Errorf("%d versions were delivered, but %d have arrived, %d of them again", a.delivered, arrived, repeated)
	}
	filter, missing := d.rules.For(receiver), 0
	for _, event := range stored {
		if deliver, _ := filter.Deliver(event); deliver {
			events++
			if !latest(string(event.UID), event.ResourceVersion) {
				missing++
			}
		}
	}
	if missing > 0 {
		return events, fmt.Errorf("of %d stored Events, %d have not arrived as they are stored", events, missing)
	}
	return events, nil
}

// compareReceivers waits until everything is delivered, and compares the accounts of the receivers
// with what has arrived and with what is stored.
func compareReceivers(ctx context.Context, meters meters, stored *stored, to *destination) error {
	var (
		last   counters
		events map[string]int
		differ error
	)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settleTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if last, err = meters.read(ctx); err != nil {
			return false, err
		}
		events, differ = map[string]int{}, nil
		for _, receiver := range meters.delivery.receivers {
			n, err := meters.delivery.difference(receiver, last.receivers[receiver], to, stored.events())
			if err != nil {
				differ = errors.Join(differ, fmt.Errorf("%s: %w", receiver, err))
			}
			events[receiver] = n
		}
		return differ == nil, nil
	})
	for _, receiver := range meters.delivery.receivers {
		arrived, repeated, _ := to.arrivals(receiver)
		say("%s: %s", receiver, last.receivers[receiver])
		say("%s: %d versions have arrived, %d of them again; stored are %d Events for it", receiver, arrived, repeated, events[receiver])
	}
	if differ == nil && err == nil {
		say("every version is accounted for, and the latest of every Event has arrived")
	}
	if wait.Interrupted(err) {
		return differ
	}
	return err
}
