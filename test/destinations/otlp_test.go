package destinations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/otlp"
)

var begin = time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)

// ways are all protocols and compressions.
var ways = []configv1alpha1.OTLP{
	{Protocol: configv1alpha1.OTLPGRPC, Compression: "gzip"},
	{Protocol: configv1alpha1.OTLPGRPC, Compression: "none"},
	{Protocol: configv1alpha1.OTLPHTTP, Compression: "gzip"},
	{Protocol: configv1alpha1.OTLPHTTP, Compression: "none"},
}

func newReceiver(t *testing.T, c *collector, way configv1alpha1.OTLP, connection configv1alpha1.Connection) receiver.Receiver {
	t.Helper()
	way.Connection = connection
	switch {
	case way.Protocol == configv1alpha1.OTLPGRPC:
		way.Endpoint = c.grpc
	case connection.Insecure:
		way.Endpoint = "http://" + c.http + "/v1/logs"
	default:
		way.Endpoint = "https://" + c.http + "/v1/logs"
	}
	r, err := otlp.New(&way, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// record returns a record that differs from all others in every field.
func record(i int) receiver.Record {
	of := func(field string) string { return fmt.Sprintf("%s %d <ü€>", field, i) }
	at := begin.Add(time.Duration(i) * time.Second)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: of("name"), Namespace: of("namespace"), UID: types.UID(of("uid")), CreationTimestamp: metav1.NewTime(at.Add(-time.Hour)),
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: of("kind"), Namespace: of("object namespace"), Name: of("object name"), UID: types.UID(of("object uid")),
			APIVersion: of("version"), ResourceVersion: of("resource version"), FieldPath: of("field path"),
		},
		Reason: of("reason"), Message: of("message"), Action: of("action"), Type: corev1.EventTypeWarning,
		Source:        corev1.EventSource{Component: of("component"), Host: of("host")},
		LastTimestamp: metav1.NewTime(at), Count: int32(i + 1),
		ReportingController: of("controller"), ReportingInstance: of("instance"),
	}
	if i%2 == 1 {
		e.Type, e.ReportingController = corev1.EventTypeNormal, ""
		e.Series = &corev1.EventSeries{Count: int32(i + 100), LastObservedTime: metav1.NewMicroTime(at.Add(time.Minute))}
	}
	return receiver.Record{ID: of("id"), Cluster: of("cluster"), Event: e, Observed: at.Add(time.Hour)}
}

// written is a record as the collector has it.
type written struct {
	Resource, Attributes map[string]string
	Body, Severity       string
	Time, Observed       int64
}

func wanted(r receiver.Record) written {
	e, object := r.Event, r.Event.InvolvedObject
	w := written{
		Resource: map[string]string{
			"k8s.cluster.name": r.Cluster, "k8s.node.name": e.Source.Host, "k8s.object.kind": object.Kind, "k8s.object.name": object.Name,
			"k8s.object.uid": string(object.UID), "k8s.object.fieldpath": object.FieldPath, "k8s.object.api_version": object.APIVersion,
			"k8s.object.resource_version": object.ResourceVersion,
		},
		Attributes: map[string]string{
			"log.record.uid": r.ID, "k8s.event.reason": e.Reason, "k8s.event.action": e.Action, "k8s.event.name": e.Name,
			"k8s.event.start_time": e.CreationTimestamp.UTC().Format(time.RFC3339), "k8s.event.uid": string(e.UID), "k8s.event.count": fmt.Sprint(e.Count),
			"k8s.event.reporting_controller": e.ReportingController, "k8s.event.reporting_instance": e.ReportingInstance,
			"k8s.namespace.name": object.Namespace,
		},
		Body: e.Message, Severity: "13 Warning", Time: e.LastTimestamp.UnixNano(), Observed: r.Observed.UnixNano(),
	}
	if e.Series != nil {
		w.Attributes["k8s.event.count"] = fmt.Sprint(e.Series.Count)
		w.Attributes["k8s.event.reporting_controller"] = e.Source.Component
		w.Severity, w.Time = "9 Normal", e.Series.LastObservedTime.UnixNano()
	}
	return w
}

func flat(attributes []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range attributes {
		if n, ok := a.Value.Value.(*commonpb.AnyValue_IntValue); ok {
			values[a.Key] = fmt.Sprint(n.IntValue)
		} else {
			values[a.Key] = a.Value.GetStringValue()
		}
	}
	return values
}

func got(l *logspb.ResourceLogs) written {
	r := l.ScopeLogs[0].LogRecords[0]
	return written{
		Resource: flat(l.Resource.Attributes), Attributes: flat(r.Attributes), Body: r.Body.GetStringValue(),
		Severity: fmt.Sprint(int(r.SeverityNumber), " ", r.SeverityText), Time: int64(r.TimeUnixNano), Observed: int64(r.ObservedTimeUnixNano),
	}
}

func check(t *testing.T, c *collector, batch []receiver.Record) {
	t.Helper()
	var all, want []written
	for _, l := range c.records(t) {
		all = append(all, got(l))
	}
	for _, r := range batch {
		want = append(want, wanted(r))
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("what the collector wrote (-want +got):\n%.4000s", diff)
	}
}

func TestCollectorWritesWhatWasSent(t *testing.T) {
	for _, way := range ways {
		t.Run(fmt.Sprint(way.Protocol, " ", way.Compression), func(t *testing.T) {
			c := newCollector(t)
			r := newReceiver(t, c, way, configv1alpha1.Connection{Insecure: true})
			batch := make([]receiver.Record, 1000)
			for i := range batch {
				batch[i] = record(i)
			}
			batch[0].Event.Message = strings.Repeat("m", 1<<20)
			batch[1].Event.Message = strings.Repeat("€", (1<<20)/3)
			batch[2].Event.Message = strings.Repeat("ü", 1<<19)
			batch[3].Event.Message = strings.Repeat("4", 1<<20)

			// The collector is away at first, and again between two batches.
			if _, err := r.Send(t.Context(), batch[:500]); err == nil {
				t.Fatal("sent to a collector that is away")
			}
			for _, part := range [][]receiver.Record{batch[:500], batch[500:]} {
				c.start(t)
				send(t, r, part)
				c.stop(t)
			}
			check(t, c, batch)
		})
	}
}

func TestCollectorWithTLSAcceptsWhatNoEventShouldHave(t *testing.T) {
	c := newCollector(t)
	pem, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := c.write(t, "tls.crt", pem)
	c.configure(t, fmt.Sprintf("        tls: {cert_file: %s, key_file: %s}", ca, c.write(t, "tls.key", key)))
	c.start(t)
	const invalid = "a\xff\xc3(\x00\u2028"
	hostile := receiver.Record{ID: "2", Event: &corev1.Event{
		Message: strings.Repeat("\xff\u0001", 1<<19), Reason: invalid, Type: invalid, InvolvedObject: corev1.ObjectReference{Kind: invalid, Name: invalid},
		LastTimestamp: metav1.Unix(1<<60, 0),
	}}
	for _, way := range ways {
		r := newReceiver(t, c, way, configv1alpha1.Connection{TLS: &configv1alpha1.TLS{CAFile: ca}})
		send(t, r, []receiver.Record{{ID: "1", Event: &corev1.Event{}}, hostile, record(3)})
	}
	c.stop(t)
	all := c.records(t)
	if len(all) != 3*len(ways) {
		t.Fatalf("the collector wrote %d records, want %d", len(all), 3*len(ways))
	}
	for i := 0; i < len(all); i += 3 {
		if diff := cmp.Diff(wanted(record(3)), got(all[i+2])); diff != "" {
			t.Errorf("what came after a hostile Event (-want +got):\n%s", diff)
		}
		if w := got(all[i+1]); w.Attributes["k8s.event.reason"] != "a\uFFFD(\x00\u2028" || w.Time != 0 || len(w.Body) != 1<<20 {
			t.Errorf("the hostile Event has %q at %d, with %d bytes", w.Attributes, w.Time, len(w.Body))
		}
	}
}
