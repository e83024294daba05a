package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

// eventList is an EventList whose Events are not decoded: that is done one after the other, so
// that a list never costs more at once than its largest Event (decoding.go).
type eventList struct {
	api             occurrence.API
	mediaType       string
	fieldValidation string   // as in metav1.CreateOptions
	items           [][]byte // in the body, or copies of its parts
}

const listKind = "EventList"

// itemsField is the number of the items in both EventLists (generated.proto of both APIs).
const itemsField = 2

// splitList finds the Events of a body. The error is the response.
func splitList(api occurrence.API, mediaType string, body []byte) (l eventList, err error) {
	l = eventList{api: api, mediaType: mediaType}
	var of metav1.TypeMeta
	if mediaType == runtime.ContentTypeProtobuf {
		of, l.items, err = splitProtobuf(body)
	} else {
		of, l.items, err = splitJSON(body)
	}
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return l, err
	}
	if err != nil {
		return l, apierrors.NewBadRequest("the batch cannot be decoded: " + err.Error())
	}
	if gv := api.GroupVersion().String(); of.Kind != listKind || of.APIVersion != gv {
		return l, apierrors.NewBadRequest(fmt.Sprintf("a batch to this path must be an %s of %s, not a %.64q of %.64q", listKind, gv, of.Kind, of.APIVersion))
	}
	return l, nil
}

var errTooManyItems = overLimit("events", batch.MaxItems)

// splitProtobuf reads the envelope of a body and the tags of its list. It allocates nothing
// for what is in an Event.
func splitProtobuf(body []byte) (of metav1.TypeMeta, items [][]byte, err error) {
	enveloped, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return of, nil, errors.New("it does not begin as a body in protobuf")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(enveloped); err != nil {
		return of, nil, err
	}
	of = metav1.TypeMeta{APIVersion: unknown.APIVersion, Kind: unknown.Kind}
	err = eachField(unknown.Raw, func(number protowire.Number, value []byte) error {
		switch {
		case number != itemsField:
		case value == nil:
			return errors.New("an item is no message")
		case len(items) == batch.MaxItems:
			return errTooManyItems
		default:
			items = append(items, value)
		}
		return nil
	})
	return of, items, err
}

// splitJSON reads the members of a list. As in the apiserver, their names are case-sensitive. Any other member is refused:
// with its items under another name, a list would be answered as if it were empty.
func splitJSON(body []byte) (of metav1.TypeMeta, items [][]byte, err error) {
	in := json.NewDecoder(bytes.NewReader(body))
	if err := expect(in, json.Delim('{')); err != nil {
		return of, nil, err
	}
	seen := make(map[json.Token]bool)
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return of, nil, err
		}
		if seen[name] {
			return of, nil, fmt.Errorf("it has two members %q", name)
		}
		seen[name] = true
		switch name {
		case "kind":
			err = in.Decode(&of.Kind)
		case "apiVersion":
			err = in.Decode(&of.APIVersion)
		case "metadata":
			err = in.Decode(new(json.RawMessage))
		case "items":
			items, err = splitItems(in)
		default:
			err = fmt.Errorf("an %s has no member %.64q", listKind, name)
		}
		if err != nil {
			return of, nil, err
		}
	}
	if err := expect(in, json.Delim('}')); err != nil {
		return of, nil, err
	}
	if _, err := in.Token(); err != io.EOF {
		return of, nil, errors.New("there is more after the list")
	}
	if !seen["items"] {
		return of, nil, errors.New("it has no items")
	}
	return of, items, nil
}

func splitItems(in *json.Decoder) (items [][]byte, err error) {
	if err := expect(in, json.Delim('[')); err != nil {
		return nil, err
	}
	for in.More() {
		if len(items) == batch.MaxItems {
			return nil, errTooManyItems
		}
		var item json.RawMessage
		if err := in.Decode(&item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, expect(in, json.Delim(']'))
}

func expect(in *json.Decoder, want json.Delim) error {
	token, err := in.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%.64v is not %v", token, want) // it may be as long as the body
	}
	return nil
}

// decode decodes an Event as it is decoded if it is alone. The error is its answer.
func (l *eventList) decode(ctx context.Context, item []byte) (event *corev1.Event, err error) {
	if l.mediaType == runtime.ContentTypeProtobuf {
		event, err = l.decodeProtobuf(item)
	} else {
		event, err = l.decodeJSON(ctx, item)
	}
	if err != nil {
		return nil, err
	}
	if err := checkEvent(event); err != nil {
		return nil, apierrors.NewBadRequest(err.Error()) // as the handlers do
	}
	return event, nil
}

func (l *eventList) decodeProtobuf(item []byte) (event *corev1.Event, err error) {
	if err := checkFields(item, metadataField); err != nil {
		return nil, err
	}
	if l.api == occurrence.EventsV1 {
		var in eventsv1.Event
		err = in.Unmarshal(item)
		event = identity.ToCoreV1(&in)
	} else {
		event = &corev1.Event{}
		err = event.Unmarshal(item)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return event, nil
}

func (l *eventList) decodeJSON(ctx context.Context, item []byte) (*corev1.Event, error) {
	if err := checkShape(item); err != nil {
		return nil, err
	}
	gv := l.api.GroupVersion()
	kind := gv.WithKind("Event")
	obj, of, err := checkedSerializer{codecs}.DecoderToVersion(jsonSerializer, hub(l.api)).Decode(item, &kind, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok && obj != nil && l.fieldValidation != metav1.FieldValidationStrict {
		for _, text := range strict.Errors() {
			l.warn(ctx, text.Error())
		}
	} else if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	event, ok := obj.(*corev1.Event)
	if !ok || of.GroupVersion() != gv {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the event is a %s, not an Event of %s", of, gv))
	}
	return event, nil
}

// warn adds a warning to the answer of the whole batch, which has each once.
func (l *eventList) warn(ctx context.Context, text string) {
	if l.fieldValidation != metav1.FieldValidationIgnore {
		warning.AddWarning(ctx, "", text)
	}
}

// jsonSerializer is the strict one that the handlers use for bodies in JSON.
var jsonSerializer = func() runtime.Serializer {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		panic("the codecs have no JSON")
	}
	return info.StrictSerializer
}()
