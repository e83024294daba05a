package intake

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of a body's structure, in addition to that of its size. The apiserver has none,
// and its cost is far from linear for some bodies: it compares owner references of one
// uid pairwise, merges finalizers pairwise, copies a merge patch once for each of its
// levels, and logs a line for each repeated error. An Event has about 30 values, one
// with managedFields some hundreds, in 8 levels.
const (
	// maxValues limits the members of objects and the items of lists in a JSON body.
	maxValues = 512
	// maxDepth limits their nesting.
	maxDepth = 64
	// maxItems limits the owner references of an Event, its finalizers, and the sum of
	// its labels and annotations.
	maxItems = 64
	// maxErrors limits the errors about metadata in one response. The apiserver returns
	// all, in a text whose cost grows with the square of their number.
	maxErrors = 16
)

// checkBody returns the error for a body that must not be decoded.
func checkBody(mediaType string, body []byte) error {
	switch mediaType {
	case runtime.ContentTypeYAML:
		return checkYAML(body)
	case runtime.ContentTypeProtobuf:
		return checkProtobuf(body)
	default: // JSON, patches, and types that the handlers refuse
		return checkShape(body)
	}
}

// checkShape returns the error for a JSON body with too many levels or values. It does
// not check whether the JSON is valid. It allocates nothing, while decoding lists of
// empty objects allocates 220 times the length of the body.
func checkShape(body []byte) error {
	values, depth := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = stringEnd(body, i)
		case '[', '{':
			values++
			if depth++; depth > maxDepth {
				return apierrors.NewBadRequest(fmt.Sprintf("the body is nested deeper than %d levels", maxDepth))
			}
		case ']', '}':
			depth--
		case ',':
			values++
		}
		if values > maxValues {
			return overLimit("values", maxValues)
		}
	}
	return nil
}

// stringEnd returns the end of the string that begins at a quotation mark.
func stringEnd(body []byte, begin int) int {
	for i := begin + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(body)
}

// checkEvent checks what checkShape cannot: the lists of an Event, and the result of a patch.
func checkEvent(event *corev1.Event) error {
	switch {
	case len(event.OwnerReferences) > maxItems:
		return overLimit("owner references", maxItems)
	case len(event.Finalizers) > maxItems:
		return overLimit("finalizers", maxItems)
	case len(event.Labels)+len(event.Annotations) > maxItems:
		return overLimit("labels and annotations", maxItems)
	}
	return nil
}

// checkMetadata returns the first maxErrors errors about an Event's metadata, if there
// are more. Fewer ones are found later, with those about other fields.
func checkMetadata(event *corev1.Event) error {
	if len(event.OwnerReferences)+len(event.Finalizers)+len(event.Labels)+len(event.Annotations) <= maxErrors/2 {
		return nil
	}
	errs := apivalidation.ValidateObjectMeta(&event.ObjectMeta, true, anyName, metadataPath)
	if len(errs) <= maxErrors {
		return nil
	}
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), event.Name, errs[:maxErrors])
}

// anyName accepts all names, which are checked elsewhere.
func anyName(string, bool) []string { return nil }

func overLimit(what string, limit int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d %s", limit, what))
}

// mediaTypeOf is the media type of a body in lower case, by default JSON. It ignores
// parameters, because the patch handler accepts malformed ones.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return cmp.Or(strings.ToLower(strings.TrimSpace(mediaType)), runtime.ContentTypeJSON)
}

// checkedSerializer applies checkEvent when an Event is decoded: the handlers' work
// before they call the storage is what costs too much. Its errors do not name the source of the scheme.
type checkedSerializer struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c checkedSerializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return checkedDecoder{c.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type checkedDecoder struct{ runtime.Decoder }

// Decode implements runtime.Decoder. The handlers return its error as one of decoding.
func (c checkedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Decoder.Decode(data, defaults, into)
	if runtime.IsNotRegisteredError(err) {
		text := err.Error()
		return obj, gvk, errors.New(text[:strings.LastIndex(text, " in scheme ")])
	}
	if event, ok := obj.(*corev1.Event); ok && event != nil {
		if refused := checkEvent(event); refused != nil {
			return nil, gvk, refused
		}
	}
	return obj, gvk, err
}
