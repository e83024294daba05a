package otlp

import (
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/pkg/receiver"
)

// A record has a body, and at most 17 attributes that are strings: 2.2 MiB, so that any fits into a
// request.
const (
	maxBodyBytes      = 1 << 20
	maxAttributeBytes = 64 << 10
)

// scope says who made the records. It has no version: that of eventd is no property of an Event.
var scope = &commonpb.InstrumentationScope{Name: "github.com/eventd/eventd"}

func resourceLogs(r receiver.Record) *logspb.ResourceLogs {
	object := &r.Event.InvolvedObject
	resource := make(attributes, 0, 8)
	resource.add("k8s.cluster.name", r.Cluster)
	resource.add("k8s.node.name", r.Event.Source.Host)
	resource.add("k8s.object.kind", object.Kind)
	resource.add("k8s.object.name", object.Name)
	resource.add("k8s.object.uid", string(object.UID))
	resource.add("k8s.object.fieldpath", object.FieldPath)
	resource.add("k8s.object.api_version", object.APIVersion)
	resource.add("k8s.object.resource_version", object.ResourceVersion)
	return &logspb.ResourceLogs{
		Resource:  &resourcepb.Resource{Attributes: resource},
		ScopeLogs: []*logspb.ScopeLogs{{Scope: scope, LogRecords: []*logspb.LogRecord{logRecord(r)}}},
	}
}

func logRecord(r receiver.Record) *logspb.LogRecord {
	e := r.Event
	log := make(attributes, 0, 11)
	log.add("log.record.uid", r.ID)
	log.add("k8s.event.reason", e.Reason)
	log.add("k8s.event.action", e.Action)
	if !e.CreationTimestamp.IsZero() {
		log.add("k8s.event.start_time", e.CreationTimestamp.UTC().Format(time.RFC3339))
	}
	log.add("k8s.event.name", e.Name)
	log.add("k8s.event.uid", string(e.UID))
	log.add("k8s.event.reporting_controller", eventfields.Reporter(e))
	log.add("k8s.event.reporting_instance", e.ReportingInstance)
	log.add("k8s.namespace.name", e.InvolvedObject.Namespace)
	log.addInt("k8s.event.count", int64(eventfields.Count(e)))
	log.addInt("eventd.summarized", int64(r.Summarized))
	severity, text := severityOf(e)
	return &logspb.LogRecord{
		TimeUnixNano:         unixNano(eventfields.LastTime(e)),
		ObservedTimeUnixNano: unixNano(r.Observed),
		SeverityNumber:       severity,
		SeverityText:         text,
		Body:                 stringValue(e.Message, maxBodyBytes),
		Attributes:           log,
	}
}

// attributes have no empty values.
type attributes []*commonpb.KeyValue

func (a *attributes) add(key, value string) {
	if value != "" {
		*a = append(*a, &commonpb.KeyValue{Key: key, Value: stringValue(value, maxAttributeBytes)})
	}
}

func (a *attributes) addInt(key string, value int64) {
	if value != 0 {
		*a = append(*a, &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}})
	}
}

// stringValue returns what is left of s within the limit, with the replacement character for what
// is not UTF-8: protobuf refuses to encode it, and a destination refuses the whole request.
func stringValue(s string, maxBytes int) *commonpb.AnyValue {
	s = eventfields.ValidUTF8(s, maxBytes)
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func severityOf(e *corev1.Event) (logspb.SeverityNumber, string) {
	switch {
	case strings.EqualFold(e.Type, corev1.EventTypeNormal):
		return logspb.SeverityNumber_SEVERITY_NUMBER_INFO, e.Type
	case strings.EqualFold(e.Type, corev1.EventTypeWarning):
		return logspb.SeverityNumber_SEVERITY_NUMBER_WARN, e.Type
	default:
		return logspb.SeverityNumber_SEVERITY_NUMBER_UNSPECIFIED, ""
	}
}

// unixNano returns 0, which is unknown, for times that OTLP can't express.
func unixNano(t time.Time) uint64 {
	if year := t.UTC().Year(); year < 1970 || year > 2200 {
		return 0
	}
	return uint64(t.UnixNano())
}
