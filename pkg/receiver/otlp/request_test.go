package otlp_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/receivertest"
)

func flat(attributes []*commonpb.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range attributes {
		if _, ok := a.Value.Value.(*commonpb.AnyValue_IntValue); ok {
			values[a.Key] = a.Value.GetIntValue()
		} else {
			values[a.Key] = a.Value.GetStringValue()
		}
	}
	return values
}

func logRecord(l *logspb.ResourceLogs) *logspb.LogRecord { return l.ScopeLogs[0].LogRecords[0] }

func TestRecordHasTheNamesOfTheCollectorsReceiver(t *testing.T) {
	var got *logspb.ResourceLogs
	url := serveHTTP(t, func(_ http.ResponseWriter, r *request) { got = r.ResourceLogs[0] })
	record := receivertest.Record(0)
	if _, err := newReceiver(t, configv1alpha1.OTLPHTTP, url, 0).Send(t.Context(), []receiver.Record{record}); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"k8s.cluster.name": "production", "k8s.node.name": "node-1", "k8s.object.kind": "Pod", "k8s.object.name": "web-0",
		"k8s.object.uid": "object-uid", "k8s.object.fieldpath": "spec.containers{web}", "k8s.object.api_version": "v1", "k8s.object.resource_version": "77",
	}
	if diff := cmp.Diff(want, flat(got.Resource.Attributes)); diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
	want = map[string]any{
		"log.record.uid": record.ID, "k8s.event.reason": "BackOff", "k8s.event.action": "Restarting", "k8s.event.start_time": "2026-11-23T06:59:00Z",
		"k8s.event.name": "web-0.17f0a2b3c4d5e6f7", "k8s.event.uid": string(record.Event.UID), "k8s.event.count": int64(3),
		"k8s.event.reporting_controller": "kubelet", "k8s.event.reporting_instance": "node-1", "k8s.namespace.name": "shop",
	}
	l := logRecord(got)
	if diff := cmp.Diff(want, flat(l.Attributes)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if l.Body.GetStringValue() != record.Event.Message || l.SeverityNumber != logspb.SeverityNumber_SEVERITY_NUMBER_WARN || l.SeverityText != "Warning" ||
		l.TimeUnixNano != uint64(receivertest.Time.UnixNano()) || l.ObservedTimeUnixNano != uint64(record.Observed.UnixNano()) {
		t.Errorf("the record is %v", l)
	}
}

func TestSummaryHasItsNumber(t *testing.T) {
	var got *logspb.ResourceLogs
	url := serveHTTP(t, func(_ http.ResponseWriter, r *request) { got = r.ResourceLogs[0] })
	record := receivertest.Record(0)
	record.Summarized = 7
	if _, err := newReceiver(t, configv1alpha1.OTLPHTTP, url, 0).Send(t.Context(), []receiver.Record{record}); err != nil {
		t.Fatal(err)
	}
	if n := flat(logRecord(got).Attributes)["eventd.summarized"]; n != int64(7) {
		t.Errorf("the attribute is %v", n)
	}
}

// What an Event does not have is no attribute, and the component of a classic one is its source's.
func TestRecordOfAnEventWithLittleInIt(t *testing.T) {
	var got *logspb.ResourceLogs
	url := serveHTTP(t, func(_ http.ResponseWriter, r *request) { got = r.ResourceLogs[0] })
	r := newReceiver(t, configv1alpha1.OTLPHTTP, url, 0)
	for eventType, want := range map[string]logspb.SeverityNumber{
		"Normal": logspb.SeverityNumber_SEVERITY_NUMBER_INFO, "normal": logspb.SeverityNumber_SEVERITY_NUMBER_INFO,
		"Warning": logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "Error": logspb.SeverityNumber_SEVERITY_NUMBER_UNSPECIFIED, "": logspb.SeverityNumber_SEVERITY_NUMBER_UNSPECIFIED,
	} {
		event := &corev1.Event{Type: eventType, Source: corev1.EventSource{Component: "kubelet"}}
		if _, err := r.Send(t.Context(), []receiver.Record{{ID: "uid/1", Event: event}}); err != nil {
			t.Fatal(err)
		}
		if l := logRecord(got); l.SeverityNumber != want || l.SeverityText != eventType && want != logspb.SeverityNumber_SEVERITY_NUMBER_UNSPECIFIED {
			t.Errorf("type %q is %s, %q", eventType, l.SeverityNumber, l.SeverityText)
		}
	}
	want := map[string]any{"log.record.uid": "uid/1", "k8s.event.reporting_controller": "kubelet", "k8s.event.count": int64(1)}
	if diff := cmp.Diff(want, flat(logRecord(got).Attributes)); diff != "" || len(got.Resource.Attributes) > 0 {
		t.Errorf("resource %v, attributes (-want +got):\n%s", got.Resource.Attributes, diff)
	}
}

func TestHostileEventsAreDeliveredByBothProtocols(t *testing.T) {
	received := 0
	var last *logspb.LogRecord
	check := func(r *request) {
		if size := proto.Size(r); size > 3<<20 {
			t.Errorf("a request has %d bytes", size)
		}
		received += len(r.ResourceLogs)
		last = logRecord(r.ResourceLogs[0])
	}
	address := serveGRPC(t, func(_ context.Context, r *request) (*response, error) {
		check(r)
		return &response{}, nil
	})
	url := serveHTTP(t, func(_ http.ResponseWriter, r *request) { check(r) })
	var batch []receiver.Record
	for what, record := range receivertest.Hostile() {
		for protocol, endpoint := range map[configv1alpha1.OTLPProtocol]string{configv1alpha1.OTLPGRPC: address, configv1alpha1.OTLPHTTP: url} {
			received = 0
			rejected, err := newReceiver(t, protocol, endpoint, 0).Send(t.Context(), []receiver.Record{record})
			if rejected != 0 || err != nil || received != 1 {
				t.Errorf("%s by %s: %d received, %d rejected, %v", what, protocol, received, rejected, err)
			}
			if ordinary := uint64(receivertest.Time.UnixNano()); last.TimeUnixNano != 0 && last.TimeUnixNano != ordinary {
				t.Errorf("%s by %s: the time is %d, which is none", what, protocol, last.TimeUnixNano)
			}
		}
		batch = append(batch, record)
	}
	received = 0
	if rejected, err := newReceiver(t, "", address, 0).Send(t.Context(), batch); rejected != 0 || err != nil || received != len(batch) {
		t.Errorf("all together: %d received, %d rejected, %v", received, rejected, err)
	}
}

func TestLargeBatchIsSeveralRequestsInOrder(t *testing.T) {
	var got []string
	var requests int
	fails := true
	address := serveGRPC(t, func(_ context.Context, r *request) (*response, error) {
		if requests++; requests == 2 && fails {
			return nil, status.Error(codes.Unavailable, "away")
		}
		if size := proto.Size(r); size > 3<<20 || size < 2<<20 && requests < 5 {
			t.Errorf("request %d has %d bytes", requests, size)
		}
		for _, l := range r.ResourceLogs {
			got = append(got, flat(logRecord(l).Attributes)["log.record.uid"].(string))
		}
		return &response{}, nil
	})
	batch := receivertest.Records(20)
	var want []string
	for i := range batch {
		batch[i].Event.Message = strings.Repeat("m", 600<<10)
		want = append(want, batch[i].ID)
	}
	r := newReceiver(t, "", address, 0)
	if _, err := r.Send(t.Context(), batch); err == nil || meaning(err).permanent {
		t.Fatalf("the error is %v", err)
	}
	fails = false
	if rejected, err := r.Send(t.Context(), batch); rejected != 0 || err != nil || !slices.Equal(got, want) {
		t.Errorf("%d rejected, %v, got %q", rejected, err, got)
	}
}

func FuzzRecord(f *testing.F) {
	for _, record := range receivertest.Hostile() {
		if encoded, err := record.Event.Marshal(); err == nil && len(encoded) < 4<<10 {
			f.Add(encoded)
		}
	}
	var received int
	address := serveGRPC(f, func(_ context.Context, r *request) (*response, error) {
		received += len(r.ResourceLogs)
		return &response{}, nil
	})
	r := newReceiver(f, "", address, 0)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		record := receiver.Record{ID: "id", Event: &corev1.Event{}}
		if record.Event.Unmarshal(encoded) != nil {
			return
		}
		received = 0
		rejected, err := r.Send(t.Context(), []receiver.Record{record})
		if rejected != 0 || err != nil && !errors.Is(err, context.Canceled) || received != 1 {
			t.Errorf("%d received, %d rejected, %v", received, rejected, err)
		}
	})
}
