package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/test/metrics"
)

func TestAccountIsTheSumOverReplicas(t *testing.T) {
	m := metrics.Metrics{
		"eventd_receiver_observed_versions_total{receiver=archive}":                 9,
		"eventd_receiver_delivered_versions_total{receiver=archive}":                3,
		"eventd_receiver_filtered_versions_total{receiver=archive,route=noise}":     2,
		"eventd_receiver_filtered_versions_total{receiver=archive,route=}":          1,
		"eventd_receiver_superseded_versions_total{receiver=archive}":               1,
		"eventd_receiver_given_up_versions_total{reason=rejected,receiver=archive}": 1,
		"eventd_receiver_handed_over_versions_total{receiver=archive}":              1,
		"eventd_receiver_lag_seconds{receiver=archive}":                             1.5,
		"eventd_receiver_delivered_versions_total{receiver=pager}":                  100,
		"eventd_receiver_filtered_versions_total{receiver=pager,route=noise}":       100,
	}
	routes := []string{"", "noise"}
	a := deliveries{}.add(m, archive, routes).add(m, archive, routes)
	const want = "observed 18 = delivered 6 + filtered{} 2 + filtered{noise} 4 + superseded 2 + given_up 2 + handed_over 2 + pending 0"
	if a.String() != want || a.lag != 1500*time.Millisecond || !a.settled() {
		t.Errorf("got %q, lag %s, settled %v; want %q", a, a.lag, a.settled(), want)
	}
	if a.observed++; a.settled() {
		t.Error("a version that is not accounted for is not noticed")
	}
	if a.pending++; a.settled() {
		t.Error("a pending version is settled")
	}
}

func TestDifferencesBetweenAccountsAndArrivalsAreFound(t *testing.T) {
	d, err := readConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	warning, normal := storedEvent("a", "2", "Warning", "Failed"), storedEvent("b", "3", "Normal", "Killing")
	noise := storedEvent("c", "4", "Normal", "Pulled")
	stored := []*corev1.Event{warning, normal, noise}
	to := newDestination()
	to.add(archive, []version{{"a", "1"}, {"a", "2"}, {"a", "2"}, {"b", "3"}})
	to.add(pager, []version{{"a", "1"}})
	for _, test := range []struct {
		name, receiver string
		account        deliveries
		events         int // stored ones that the receiver is to get; 0 if they differ
	}{
		{"all is well, though one arrived twice", archive, deliveries{observed: 4, delivered: 3, filtered: map[string]int64{"noise": 1}}, 2},
		{"something is pending", archive, deliveries{observed: 4, delivered: 3, pending: 1}, 0},
		{"more were delivered than have arrived", archive, deliveries{observed: 5, delivered: 5}, 0},
		{"fewer were delivered than have arrived", archive, deliveries{observed: 2, delivered: 2}, 0},
		{"the latest version has not arrived", pager, deliveries{observed: 1, delivered: 1}, 0},
	} {
		events, err := d.difference(test.receiver, test.account, to, stored)
		if (err == nil) != (test.events > 0) || err == nil && events != test.events {
			t.Errorf("%s: %d Events, %v", test.name, events, err)
		}
	}
}
