package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/otlp"
)

// sendTo returns a destination, and what sends Events to it as eventd does.
func sendTo(t *testing.T, behave behaviour) (*destination, func(events ...int) (rejected int, err error)) {
	t.Helper()
	d, err := startDestination(t.Context(), "test", behave)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	config := &v1alpha1.OTLP{Protocol: v1alpha1.OTLPHTTP, Endpoint: d.url() + "/v1/logs", Connection: v1alpha1.Connection{Insecure: true}}
	r, err := otlp.New(config, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return d, func(events ...int) (int, error) {
		var batch []receiver.Record
		for _, event := range events {
			batch = append(batch, receiver.Record{ID: "id", Event: version{event, 1}.object("bench-0")})
		}
		return r.Send(t.Context(), batch)
	}
}

func (a *arrivals) events() (events []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v := range a.first {
		events = append(events, v.event)
	}
	slices.Sort(events)
	return events
}

func TestADestinationKeepsWhatItAccepts(t *testing.T) {
	d, send := sendTo(t, healthy)
	if rejected, err := send(1, 2, 3); rejected != 0 || err != nil {
		t.Fatal(rejected, err)
	}
	if got := d.arrivals.events(); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	address := d.address
	d.close()
	if _, err := send(4); err == nil {
		t.Error("it is away, and accepts")
	}
	if err := d.open(t.Context()); err != nil || d.address != address {
		t.Fatal(d.address, err)
	}
	if _, err := send(4); err != nil {
		t.Error(err)
	}
	if got := d.arrivals.events(); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("got %v", got)
	}
}

// A batch is sent until it is acknowledged, in two rounds.
func TestAFaultyDestinationLosesNothingButWhatItRejects(t *testing.T) {
	d, send := sendTo(t, faulty)
	for round := range 2 {
		first := 10 * round
		var errs []error
		for range 3 {
			_, err := send(first+1, first+2, first+3)
			errs = append(errs, err)
		}
		throttled, ok := errors.AsType[*receiver.Error](errs[0])
		if !ok || throttled.RetryAfter != time.Second || errs[1] == nil || errs[2] == nil {
			t.Fatalf("the first three fail with %v", errs)
		}
		if rejected, err := send(first+1, first+2, first+3); rejected != 0 || err != nil {
			t.Fatal(rejected, err)
		}
		if rejected, err := send(first+4, first+5, first+6, first+7, first+8); rejected != 2 || err != nil {
			t.Fatal(rejected, err)
		}
	}
	if got := d.arrivals.events(); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}) {
		t.Errorf("got %v", got)
	}
	if d.arrivals.again != 6 {
		t.Errorf("%d came again, 3 in each round", d.arrivals.again)
	}
}

func TestASlowDestinationTakesASecond(t *testing.T) {
	d, send := sendTo(t, slow)
	began := time.Now()
	if _, err := send(1); err != nil || time.Since(began) < time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if _, latest := d.arrivals.progress(); latest.Sub(began) < time.Second {
		t.Errorf("it has it after %s", latest.Sub(began))
	}
}

func TestMessagesAreFoundInTheBodiesOfAllSides(t *testing.T) {
	text := func(s string) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
	}
	object := func(key string, value *commonpb.AnyValue) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{
			{Key: "type", Value: text("ADDED")}, {Key: key, Value: value},
		}}}}
	}
	request := &collogspb.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{ScopeLogs: []*logspb.ScopeLogs{{LogRecords: []*logspb.LogRecord{
		{Body: text(version{1, 2}.message())},
		{Body: object("object", object("message", text(version{3, 4}.message())))},
		{Body: object("object", text("no object"))},
		{Body: text("of somebody else")},
		{},
	}}}}}}
	if got := versionsOf(request); !slices.Equal(got, []version{{1, 2}, {3, 4}}) {
		t.Errorf("got %v", got)
	}
}

func TestTheEndOfAStreamIsWhenEverythingHasComeOrNothingMore(t *testing.T) {
	d := &destination{arrivals: newArrivals()}
	s := newStored()
	s.add(version{1, 1}, time.Now())
	began := time.Now()
	if err := d.waitDelivered(t.Context(), s, 50*time.Millisecond); err != nil || time.Since(began) < 50*time.Millisecond {
		t.Errorf("%v after %s, with nothing", err, time.Since(began))
	}
	d.arrivals.add([]version{{1, 1}}, time.Now())
	if err := d.waitDelivered(t.Context(), s, time.Hour); err != nil {
		t.Error(err)
	}
}
