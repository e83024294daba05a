package cloudevents

import (
	"math"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/eventjson"
	"github.com/eventd/eventd/pkg/receiver"
)

const eventType = "io.k8s.api.core.v1.Event"

// encode returns the record in the JSON format. It fails for nothing that an Event can be, since
// what is not UTF-8 is replaced; if it ever does, the record is refused for good.
func encode(r receiver.Record) ([]byte, error) {
	ce, err := newEvent(r)
	if err != nil {
		return nil, &receiver.Error{Permanent: true, Err: err}
	}
	body, err := ce.MarshalJSON()
	if err != nil {
		return nil, &receiver.Error{Permanent: true, Err: err}
	}
	return body, nil
}

func newEvent(r receiver.Record) (*event.Event, error) {
	context := &event.EventContextV1{
		ID:     eventfields.ValidUTF8(r.ID, math.MaxInt),
		Source: source(r.Cluster),
		Type:   eventType,
	}
	if s := subject(&r.Event.InvolvedObject); s != "" {
		context.Subject = &s
	}
	if t := eventfields.LastTime(r.Event); inRFC3339(t) {
		context.Time = &types.Timestamp{Time: t.UTC()}
	}
	if r.Summarized > 0 {
		// The JSON format has the number as it is. An extension of CloudEvents is an int32.
		context.Extensions = map[string]any{"summarized": int32(min(r.Summarized, math.MaxInt32))}
	}
	data := eventjson.Of(r.Event)
	ce := &event.Event{Context: context}
	return ce, ce.SetData(event.ApplicationJSON, &data)
}

func source(cluster string) types.URIRef {
	return types.URIRef{URL: url.URL{Path: "/clusters/" + cluster, RawPath: "/clusters/" + url.PathEscape(cluster)}}
}

// subject returns the path of an object, without that of its API: /namespaces/NS/pods/NAME. It
// is empty if the object has no kind or no name.
func subject(object *corev1.ObjectReference) string {
	if object.Kind == "" || object.Name == "" {
		return ""
	}
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	path := "/" + url.PathEscape(resource.Resource) + "/" + url.PathEscape(object.Name)
	if object.Namespace != "" {
		path = "/namespaces/" + url.PathEscape(object.Namespace) + path
	}
	return path
}

// inRFC3339 reports whether t can be written with a year of four digits.
func inRFC3339(t time.Time) bool {
	return !t.IsZero() && t.UTC().Year() >= 0 && t.UTC().Year() <= 9999
}

// encodeBatch returns a JSON array of the first of the records, and of as many of those that
// follow as fit into maxBatchBytes, and how many these are, which is at least 1.
func encodeBatch(records []receiver.Record) (body []byte, n int, err error) {
	body = append(body, '[')
	for _, r := range records {
		encoded, err := encode(r)
		switch {
		case n == 0 && err != nil:
			return nil, 1, err
		case err != nil || n > 0 && len(body)+len(encoded)+len(",]") > maxBatchBytes:
			return append(body, ']'), n, nil
		case n > 0:
			body = append(body, ',')
		}
		body = append(body, encoded...)
		n++
	}
	return append(body, ']'), n, nil
}
