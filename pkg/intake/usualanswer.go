package intake

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// respond writes an Event. It does not change it: that of a view is shared.
func (u *usual) respond(w http.ResponseWriter, req *http.Request, code int, event *corev1.Event) {
	var body []byte
	if isUsualAnswer(event) {
		body = u.encode(event)
	}
	if body == nil {
		responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, u.api.GroupVersion(), w, req, code, event.DeepCopy(), false)
		return
	}
	w.Header()["Content-Type"] = contentTypes[u.answer]
	w.WriteHeader(code)
	_, _ = w.Write(body) // which takes no copy of JSON
}

// contentTypes are the values of the header, which nobody changes.
var contentTypes = map[string][]string{
	runtime.ContentTypeJSON:     {runtime.ContentTypeJSON},
	runtime.ContentTypeProtobuf: {runtime.ContentTypeProtobuf},
}

// isUsualAnswer reports whether an Event has nothing but what appendEvent writes.
func isUsualAnswer(event *corev1.Event) bool {
	m := &event.ObjectMeta
	return isUsualMeta(m) && m.GetSelfLink() == "" && m.Generation == 0 && m.DeletionTimestamp == nil && m.DeletionGracePeriodSeconds == nil &&
		len(m.Labels)+len(m.Annotations) == 0
}

// encode returns nil if the Event cannot be encoded. JSON is encoded in the buffer of the response.
func (u *usual) encode(event *corev1.Event) []byte {
	if u.answer == runtime.ContentTypeJSON {
		buffer := &u.call.response.body
		buffer.Grow(answerBytes)
		return appendEvent(buffer.AvailableBuffer(), event, u.api)
	}
	typed := *event
	typed.TypeMeta = metav1.TypeMeta{Kind: "Event", APIVersion: u.api.GroupVersion().String()}
	var object runtime.Object = &typed
	if u.api == occurrence.EventsV1 {
		newStyle := identity.ToEventsV1(&typed)
		newStyle.TypeMeta = typed.TypeMeta
		object = newStyle
	}
	var out bytes.Buffer
	if protobufSerializer.Encode(object, &out) != nil {
		return nil
	}
	return out.Bytes()
}

// protobufSerializer encodes the type of an Event with it.
var protobufSerializer = protobuf.NewSerializer(scheme, scheme)

// answerBytes is about what an Event takes.
const answerBytes = 1536

// appendEvent appends an Event as encoding/json encodes it, and a newline.
func appendEvent(out []byte, e *corev1.Event, api occurrence.API) []byte {
	if api == occurrence.EventsV1 {
		out = append(out, `{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{`...)
		out = appendMeta(out, &e.ObjectMeta)
		out = append(out, `},"eventTime":`...)
		out = appendTime(out, e.EventTime.Time, metav1.RFC3339Micro)
		if e.Series != nil {
			out = append(out, `,"series":{"count":`...)
			out = strconv.AppendInt(out, int64(e.Series.Count), 10)
			out = append(out, `,"lastObservedTime":`...)
			out = appendTime(out, e.Series.LastObservedTime.Time, metav1.RFC3339Micro)
			out = append(out, '}')
		}
		out = appendField(out, "reportingController", e.ReportingController)
		out = appendField(out, "reportingInstance", e.ReportingInstance)
		out = appendField(out, "action", e.Action)
		out = appendField(out, "reason", e.Reason)
		out = append(out, `,"regarding":`...)
		out = appendReference(out, &e.InvolvedObject)
		out = appendRelated(out, e.Related)
		out = appendField(out, "note", e.Message)
		out = appendField(out, "type", e.Type)
		out = append(out, `,"deprecatedSource":`...)
		out = appendSource(out, &e.Source)
		out = append(out, `,"deprecatedFirstTimestamp":`...)
		out = appendTime(out, e.FirstTimestamp.Time, time.RFC3339)
		out = append(out, `,"deprecatedLastTimestamp":`...)
		out = appendTime(out, e.LastTimestamp.Time, time.RFC3339)
		out = appendCount(out, `,"deprecatedCount":`, e.Count)
		return append(out, "}\n"...)
	}
	out = append(out, `{"kind":"Event","apiVersion":"v1","metadata":{`...)
	out = appendMeta(out, &e.ObjectMeta)
	out = append(out, `},"involvedObject":`...)
	out = appendReference(out, &e.InvolvedObject)
	out = appendField(out, "reason", e.Reason)
	out = appendField(out, "message", e.Message)
	out = append(out, `,"source":`...)
	out = appendSource(out, &e.Source)
	out = append(out, `,"firstTimestamp":`...)
	out = appendTime(out, e.FirstTimestamp.Time, time.RFC3339)
	out = append(out, `,"lastTimestamp":`...)
	out = appendTime(out, e.LastTimestamp.Time, time.RFC3339)
	out = appendCount(out, `,"count":`, e.Count)
	out = appendField(out, "type", e.Type)
	out = append(out, `,"eventTime":`...)
	out = appendTime(out, e.EventTime.Time, metav1.RFC3339Micro)
	if e.Series != nil {
		out = append(out, `,"series":{`...)
		out = appendCount(out, `"count":`, e.Series.Count)
		out = separate(out)
		out = append(out, `"lastObservedTime":`...)
		out = appendTime(out, e.Series.LastObservedTime.Time, metav1.RFC3339Micro)
		out = append(out, '}')
	}
	out = appendField(out, "action", e.Action)
	out = appendRelated(out, e.Related)
	out = append(out, `,"reportingComponent":`...)
	out = appendString(out, e.ReportingController)
	out = append(out, `,"reportingInstance":`...)
	out = appendString(out, e.ReportingInstance)
	return append(out, "}\n"...)
}

func appendMeta(out []byte, m *metav1.ObjectMeta) []byte {
	out = appendField(out, "name", m.Name)
	out = appendField(out, "generateName", m.GenerateName)
	out = appendField(out, "namespace", m.Namespace)
	out = appendField(out, "uid", string(m.UID))
	out = appendField(out, "resourceVersion", m.ResourceVersion)
	if !m.CreationTimestamp.IsZero() {
		out = append(separate(out), `"creationTimestamp":`...)
		out = appendTime(out, m.CreationTimestamp.Time, time.RFC3339)
	}
	return out
}

func appendReference(out []byte, ref *corev1.ObjectReference) []byte {
	out = append(out, '{')
	out = appendField(out, "kind", ref.Kind)
	out = appendField(out, "namespace", ref.Namespace)
	out = appendField(out, "name", ref.Name)
	out = appendField(out, "uid", string(ref.UID))
	out = appendField(out, "apiVersion", ref.APIVersion)
	out = appendField(out, "resourceVersion", ref.ResourceVersion)
	out = appendField(out, "fieldPath", ref.FieldPath)
	return append(out, '}')
}

func appendRelated(out []byte, related *corev1.ObjectReference) []byte {
	if related == nil {
		return out
	}
	return appendReference(append(out, `,"related":`...), related)
}

func appendSource(out []byte, source *corev1.EventSource) []byte {
	out = append(out, '{')
	out = appendField(out, "component", source.Component)
	out = appendField(out, "host", source.Host)
	return append(out, '}')
}

// separate appends a comma, unless an object has just begun.
func separate(out []byte) []byte {
	if out[len(out)-1] == '{' {
		return out
	}
	return append(out, ',')
}

// appendField appends a field that is omitted if it is empty. Its name needs no escape.
func appendField(out []byte, name, value string) []byte {
	if value == "" {
		return out
	}
	out = append(separate(out), '"')
	out = append(out, name...)
	return appendString(append(out, `":`...), value)
}

func appendCount(out []byte, name string, count int32) []byte {
	if count == 0 {
		return out
	}
	return strconv.AppendInt(append(out, name...), int64(count), 10)
}

func appendTime(out []byte, t time.Time, layout string) []byte {
	if t.IsZero() {
		return append(out, "null"...)
	}
	out = append(out, '"')
	out = t.UTC().AppendFormat(out, layout)
	return append(out, '"')
}

// appendString appends a string in quotation marks, as encoding/json escapes it for HTML.
func appendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	begin := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
				i++
				continue
			}
			out = append(out, s[begin:i]...)
			switch c {
			case '"', '\\':
				out = append(out, '\\', c)
			case '\b':
				out = append(out, '\\', 'b')
			case '\f':
				out = append(out, '\\', 'f')
			case '\n':
				out = append(out, '\\', 'n')
			case '\r':
				out = append(out, '\\', 'r')
			case '\t':
				out = append(out, '\\', 't')
			default:
				out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xF])
			}
			i++
			begin = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, s[begin:i]...)
			out = append(out, `\ufffd`...)
			begin = i + size
		case r == '\u2028' || r == '\u2029':
			out = append(out, s[begin:i]...)
			out = append(out, `\u202`...)
			out = append(out, hex[r&0xF])
			begin = i + size
		}
		i += size
	}
	out = append(out, s[begin:]...)
	return append(out, '"')
}
