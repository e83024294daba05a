package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/pkg/receiver/otlp"
)

func startDestination(t *testing.T) *destination {
	t.Helper()
	d := newDestination()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// startReceivers makes the receivers of the file that the replicas read.
func startReceivers(t *testing.T, to *destination) map[string]receiver.Receiver {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	if _, err := writeConfiguration(file, to); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := v1alpha1.Load(content)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]receiver.Receiver{}
	for _, c := range config.Receivers {
		if c.OTLP != nil {
			all[c.Name], err = otlp.New(c.OTLP, c.Timeout.Duration)
		} else {
			all[c.Name], err = cloudevents.New(c.CloudEvents, c.Timeout.Duration)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := all[c.Name].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

func storedEvent(uid, resourceVersion, eventType, reason string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: demoNamespace, Name: uid, UID: types.UID(uid), ResourceVersion: resourceVersion},
		Type:       eventType, Reason: reason, Message: reason,
	}
}

func records(events ...*corev1.Event) (batch []receiver.Record) {
	for _, e := range events {
		batch = append(batch, receiver.Record{ID: string(e.UID) + "/" + e.ResourceVersion, Cluster: clusterName, Event: e})
	}
	return batch
}

func TestReceiversDeliverToTheDestination(t *testing.T) {
	to := startDestination(t)
	for name, r := range startReceivers(t, to) {
		a9, a10, b := storedEvent("a", "9", "Normal", "A"), storedEvent("a", "10", "Normal", "A"), storedEvent("b", "11", "Warning", "B")
		for _, batch := range [][]receiver.Record{records(a9, b), records(a10), records(a10, a9)} {
			if rejected, err := r.Send(t.Context(), batch); rejected != 0 || err != nil {
				t.Fatalf("%s: %d rejected, %v", name, rejected, err)
			}
		}
		versions, repeated, latest := to.arrivals(name)
		if versions != 5 || repeated != 2 || !latest("a", "10") || latest("a", "9") || !latest("b", "11") {
			t.Errorf("%s: %d versions have arrived, %d of them again: %v", name, versions, repeated, to.arrived[name].latest)
		}
		if to.forget("a"); latest("a", "10") {
			t.Errorf("%s: an Event that is gone is kept", name)
		}
	}
}

func TestDestinationRefusesWhatItCannotDecode(t *testing.T) {
	to := startDestination(t)
	for path, body := range map[string]string{logsPath: "{}", eventsPath: `[{"id":"no version"}]`} {
		response, err := http.Post(to.url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
