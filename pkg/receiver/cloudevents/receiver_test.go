package cloudevents_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/cloudevents"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/receivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// destination decodes with the SDK what comes, and answers with status by the ID of the first
// event of a request, which is 202 if there is none.
type destination struct {
	t        testing.TB
	status   map[string]int
	requests [][]event.Event
	largest  int // request, in bytes
	// refuse is the ID of an Event: requests with it are refused for good. accepted are those of the
	// requests that were accepted.
	refuse   string
	accepted []string
}

func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	var events []event.Event
	switch r.Header.Get("Content-Type") {
	case "application/cloudevents-batch+json":
		err = json.Unmarshal(body, &events)
	case "application/cloudevents+json":
		events = make([]event.Event, 1)
		err = json.Unmarshal(body, &events[0])
	default:
		err = errors.New(r.Header.Get("Content-Type"))
	}
	if err != nil || len(events) == 0 {
		d.t.Errorf("a request cannot be read: %v", err)
		return
	}
	for _, e := range events {
		if err := e.Validate(); err != nil {
			d.t.Errorf("not a CloudEvent: %v", err)
		}
	}
	d.requests = append(d.requests, events)
	d.largest = max(d.largest, len(body))
	w.Header().Set("Retry-After", "5")
	status := d.status[events[0].ID()]
	switch {
	case slices.ContainsFunc(events, func(e event.Event) bool { return e.ID() == d.refuse }):
		status = http.StatusUnprocessableEntity
	case status == 0:
		status = http.StatusAccepted
		for _, e := range events {
			d.accepted = append(d.accepted, e.ID())
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html>")
}

// ids returns the IDs that the requests had since the last call.
func (d *destination) ids() (ids [][]string) {
	for _, events := range d.requests {
		var of []string
		for _, e := range events {
			of = append(of, e.ID())
		}
		ids = append(ids, of)
	}
	d.requests = nil
	return ids
}

func start(t testing.TB, batched bool) (*destination, *cloudevents.Receiver) {
	t.Helper()
	d := &destination{t: t, status: map[string]int{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	r, err := cloudevents.New(&configv1alpha1.CloudEvents{URL: server.URL, Batched: batched, Connection: configv1alpha1.Connection{Insecure: true}}, await.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, r
}

func TestEventHasItsAttributesInBothModes(t *testing.T) {
	for _, batched := range []bool{false, true} {
		d, r := start(t, batched)
		record := receivertest.Record(0)
		record.Cluster = "a/b ü"
		if rejected, err := r.Send(t.Context(), []receiver.Record{record}); rejected != 0 || err != nil {
			t.Fatalf("%d rejected, %v", rejected, err)
		}
		e := d.requests[0][0]
		got := []string{e.SpecVersion(), e.ID(), e.Source(), e.Type(), e.Subject(), e.Time().Format("2006-01-02T15:04:05Z07:00"), e.DataContentType()}
		want := []string{"1.0", record.ID, "/clusters/a%2Fb%20%C3%BC", "io.k8s.api.core.v1.Event", "/namespaces/shop/pods/web-0", "2026-11-23T07:00:00Z", "application/json"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("batched %v (-want +got):\n%s", batched, diff)
		}
		if len(e.Extensions()) > 0 {
			t.Errorf("the extensions are %v", e.Extensions())
		}
		record.Summarized = 7
		if _, err := r.Send(t.Context(), []receiver.Record{record}); err != nil {
			t.Fatal(err)
		}
		if got := d.requests[1][0].Extensions(); len(got) != 1 || fmt.Sprint(got["summarized"]) != "7" {
			t.Errorf("the extensions of a summary are %v", got)
		}
		var data corev1.Event
		if err := e.DataAs(&data); err != nil {
			t.Fatal(err)
		}
		if data.Kind != "Event" || data.APIVersion != "v1" || record.Event.Kind != "" {
			t.Errorf("the data is a %q of %q; the record's Event, %q, must not be changed", data.Kind, data.APIVersion, record.Event.Kind)
		}
		data.TypeMeta = record.Event.TypeMeta
		if !data.LastTimestamp.Equal(&record.Event.LastTimestamp) || data.Message != record.Event.Message || data.InvolvedObject != record.Event.InvolvedObject || data.Count != record.Event.Count {
			t.Errorf("the data is %v", data)
		}
	}
}

func TestSubjectIsThePathOfTheObject(t *testing.T) {
	for want, object := range map[string]corev1.ObjectReference{
		"/nodes/node-1":                             {Kind: "Node", Name: "node-1"},
		"/namespaces/shop/networkpolicies/p":        {Kind: "NetworkPolicy", Namespace: "shop", Name: "p"},
		"/namespaces/a%2Fb/x%2Fies/..%2F%FF%3Fq%23": {Kind: "x/y", Namespace: "a/b", Name: "../\xff?q#"},
		"": {Namespace: "shop"},
	} {
		d, r := start(t, false)
		record := receivertest.Record(0)
		record.Event.InvolvedObject = object
		if _, err := r.Send(t.Context(), []receiver.Record{record}); err != nil {
			t.Fatal(err)
		}
		if got := d.requests[0][0].Subject(); got != want {
			t.Errorf("%+v: %q, want %q", object, got, want)
		}
	}
}

func TestEventsAreSentOneByOneFromTheFirstThatFailed(t *testing.T) {
	d, r := start(t, false)
	batch := receivertest.Records(4)
	id := func(i int) string { return batch[i].ID }
	d.status[id(1)], d.status[id(2)] = http.StatusUnprocessableEntity, http.StatusServiceUnavailable
	rejected, err := r.Send(t.Context(), batch)
	failed, ok := errors.AsType[*receiver.Error](err)
	if rejected != 0 || !ok || failed.Permanent || failed.RetryAfter.Seconds() != 5 {
		t.Errorf("%d rejected, %v", rejected, err)
	}
	if diff := cmp.Diff([][]string{{id(0)}, {id(1)}, {id(2)}}, d.ids()); diff != "" {
		t.Error(diff)
	}
	delete(d.status, id(2))
	if rejected, err := r.Send(t.Context(), batch); rejected != 1 || err != nil {
		t.Errorf("%d rejected, %v", rejected, err)
	}
	if diff := cmp.Diff([][]string{{id(2)}, {id(3)}}, d.ids()); diff != "" {
		t.Error(diff)
	}
}

func TestBatchIsOneRequestAndRefusedAsOne(t *testing.T) {
	d, r := start(t, true)
	batch := receivertest.Records(4)
	d.status[batch[0].ID] = http.StatusBadRequest
	_, err := r.Send(t.Context(), batch)
	if failed, ok := errors.AsType[*receiver.Error](err); !ok || !failed.Permanent {
		t.Errorf("the error is %v", err)
	}
	if ids := d.ids(); len(ids) != 1 || len(ids[0]) != 4 {
		t.Errorf("the requests are %q", ids)
	}
}

// The Events of one tenant make a batch so large that it takes several requests, one of which has an
// Event that is refused.
func TestEventThatIsRefusedHasNoOthersRejected(t *testing.T) {
	d, r := start(t, true)
	batch := receivertest.Records(100)
	for i := range 10 {
		batch[90+i].Event.Message = strings.Repeat("m", 200<<10)
	}
	d.refuse = batch[40].ID
	if rejected, err := r.Send(t.Context(), batch); rejected != 1 || err != nil {
		t.Errorf("%d rejected, %v, want 1", rejected, err)
	}
	accepted := map[string]bool{}
	for _, id := range d.accepted {
		accepted[id] = true
	}
	if len(accepted) != 99 || accepted[batch[40].ID] {
		t.Errorf("%d Events were accepted, want 99", len(accepted))
	}
}

func TestHostileEventsAreDelivered(t *testing.T) {
	d, r := start(t, true)
	var batch []receiver.Record
	for what, record := range receivertest.Hostile() {
		record.ID = what
		batch = append(batch, record)
	}
	rejected, err := r.Send(t.Context(), batch)
	for _, e := range slices.Concat(d.requests...) {
		// A consumer that fails, and so gets the batch again, would block the Events behind it.
		if err := e.DataAs(&corev1.Event{}); err != nil {
			t.Errorf("%s: a consumer cannot decode it: %v", e.ID(), err)
		}
	}
	if got := slices.Concat(d.ids()...); rejected != 0 || err != nil || len(got) != len(batch) {
		t.Errorf("%d of %d delivered, %d rejected, %v", len(got), len(batch), rejected, err)
	}
}

func TestBodyBelongsToTheTransport(t *testing.T) {
	var r *cloudevents.Receiver
	receivertest.TestBodiesOfEarlyAnswers(t, func(url string, message byte) {
		if r == nil {
			var err error
			if r, err = cloudevents.New(&configv1alpha1.CloudEvents{URL: url, Batched: true, Connection: configv1alpha1.Connection{Insecure: true}}, await.Timeout); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
		}
		batch := receivertest.Records(1)
		batch[0].Event.Message = strings.Repeat(string(message), 1<<20)
		if _, err := r.Send(t.Context(), batch); err != nil {
			t.Error(err)
		}
	})
}

func TestBatchesHaveAtMostOneMiB(t *testing.T) {
	d, r := start(t, true)
	batch := receivertest.Records(3000)
	if rejected, err := r.Send(t.Context(), batch); rejected != 0 || err != nil {
		t.Fatalf("%d rejected, %v", rejected, err)
	}
	if got := d.ids(); len(got) < 3 || len(slices.Concat(got...)) != len(batch) || d.largest > 1<<20 || d.largest < 1<<19 {
		t.Errorf("%d requests, the largest has %d bytes", len(got), d.largest)
	}
}

func TestConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for _, config := range []configv1alpha1.CloudEvents{{}, {URL: "http://broker"}, {URL: "https://broker", Connection: configv1alpha1.Connection{BearerTokenFile: "/none"}}} {
		if _, err := cloudevents.New(&config, 0); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func FuzzEvent(f *testing.F) {
	for _, record := range receivertest.Hostile() {
		if encoded, err := record.Event.Marshal(); err == nil && len(encoded) < 4<<10 {
			f.Add(encoded, record.ID, record.Cluster)
		}
	}
	d, r := start(f, true)
	f.Fuzz(func(t *testing.T, encoded []byte, id, cluster string) {
		record := receiver.Record{ID: "a" + id, Cluster: cluster, Event: &corev1.Event{}}
		if record.Event.Unmarshal(encoded) != nil {
			return
		}
		d.t = t
		rejected, err := r.Send(t.Context(), []receiver.Record{record, record})
		if rejected != 0 || err != nil || len(slices.Concat(d.ids()...)) != 2 {
			t.Errorf("%d rejected, %v", rejected, err)
		}
	})
}
