package intake

import (
	"bytes"
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Unnamed reports whether a replica that has lost the answer to a POST of this body
// takes it for one whose name is generated.
func Unnamed(api occurrence.API, mediaType string, body []byte) bool {
	return unnamed(mediaType, body, api.GroupVersion().WithKind("Event"))
}

// For the tests of what decoding costs.
var CostOf = costOf

const (
	JSONFactor = jsonFactor
	SmallCost  = smallCost
)

// ReserveDecoding reserves bytes as a request does that is being decoded.
func (i *Intake) ReserveDecoding(ctx context.Context, cost int64) (release func(), err error) {
	r, err := i.decoding.reserve(ctx, cost)
	return r.release, err
}

// ViewBytes is what the view of a name is counted to take.
func (i *Intake) ViewBytes(namespace, name string) int64 {
	return i.names.known(key{namespace, name}).view.size
}

// What another replica asserts, and what is looked at before a body is decoded.
var (
	DecodeUser = decodeUser
	CheckShape = checkShape
)

const (
	MaxValues = maxValues
	MaxDepth  = maxDepth
)

// IsPlain reports whether plain handles the body of a POST or PATCH.
func (i *Intake) IsPlain(api occurrence.API, mediaType string, body []byte) bool {
	scope, err := newScope(i, api)
	if err != nil {
		panic(err)
	}
	if mediaType == string(types.StrategicMergePatchType) {
		return new(raise).decode(body, api)
	}
	req := withBody(&http.Request{Header: http.Header{"Content-Type": {mediaType}}}, body, 0)
	return newPlain(newStorage(i, api, nil), scope).decode(req) != nil
}

// DecodeEvent decodes a body as the handlers of the apiserver do. The error may be a warning.
func DecodeEvent(api occurrence.API, mediaType string, body []byte) (*corev1.Event, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	serializer := info.StrictSerializer
	kind := api.GroupVersion().WithKind("Event")
	obj, _, err := checkedSerializer{codecs}.DecoderToVersion(serializer, hub(api)).Decode(body, &kind, &corev1.Event{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Event), nil
}

// GenericAnswer encodes an Event as the handlers of the apiserver do.
func GenericAnswer(event *corev1.Event, api occurrence.API, mediaType string) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	var out bytes.Buffer
	err := codecs.EncoderForVersion(info.Serializer, api.GroupVersion()).Encode(event.DeepCopy(), &out)
	return out.Bytes(), err
}
