package intake

import (
	"bytes"
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

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

// GenericPath returns the handler without the fast path.
func GenericPath(h http.Handler) http.Handler { return h.(*fastPath).generic }

// UsualInfo is the RequestInfo of a request on the fast path, nil on the generic one.
func UsualInfo(req *http.Request) *request.RequestInfo {
	if u := usualRequest(req, maxUsualBody, usualHeaders); u != nil {
		return &u.info
	}
	return nil
}

// GenericInfo is the RequestInfo of a request on the generic path.
func GenericInfo(req *http.Request) (*request.RequestInfo, error) {
	return newResolver().NewRequestInfo(req)
}

// UsualEvent decodes a body on the fast path. It returns nil if the body is not usual.
func UsualEvent(api occurrence.API, mediaType string, body []byte) *corev1.Event {
	u := &usual{api: api, protobuf: mediaType == runtime.ContentTypeProtobuf}
	u.info.Namespace = "ns"
	return u.decode(body)
}

// GenericEvent decodes a body as the handlers of the apiserver do. The error may be a warning.
func GenericEvent(api occurrence.API, mediaType string, body []byte) (*corev1.Event, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	serializer := info.StrictSerializer
	kind := api.GroupVersion().WithKind("Event")
	obj, _, err := checkedSerializer{codecs}.DecoderToVersion(serializer, hub(api)).Decode(body, &kind, &corev1.Event{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Event), nil
}

// UsualAnswer encodes an Event on the fast path, and GenericAnswer as the handlers of the apiserver do.
func UsualAnswer(event *corev1.Event, api occurrence.API, mediaType string) []byte {
	if !isUsualAnswer(event) {
		return nil
	}
	return (&usual{api: api, answer: mediaType}).encode(event.DeepCopy())
}

func GenericAnswer(event *corev1.Event, api occurrence.API, mediaType string) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	var out bytes.Buffer
	err := codecs.EncoderForVersion(info.Serializer, api.GroupVersion()).Encode(event.DeepCopy(), &out)
	return out.Bytes(), err
}
