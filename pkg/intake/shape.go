package intake

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of a body's structure, beside that of its bytes. The apiserver has none,
// and spends far more than a body's length on some: it compares owner references of
// one uid pairwise, merges finalizers pairwise, copies a merge patch once for each
// level of it, and writes a line into its log for each error that repeats. An Event
// has about 30 values, one with managedFields some hundreds, in 8 levels.
const (
	// maxValues is how many members of objects and items of lists a JSON body may
	// have in all.
	maxValues = 512
	// maxDepth is how deep they may be nested.
	maxDepth = 64
	// maxItems is how many owner references an Event may have, how many finalizers,
	// and how many labels and annotations together.
	maxItems = 64
	// maxErrors is how many errors in an Event's metadata are answered. The apiserver
	// answers all, in a text whose making takes the square of their number.
	maxErrors = 16
)

// checkBody returns the error to answer a body with that is not to be decoded.
func checkBody(mediaType string, body []byte) error {
	switch mediaType {
	case runtime.ContentTypeYAML:
		return checkYAML(body)
	case runtime.ContentTypeProtobuf:
		return nil // what is made of it is looked at
	default: // JSON, patches, and what the handlers refuse
		return checkShape(body)
	}
}

// checkShape returns the error to answer a JSON body with that is nested too deep
// or has too many values. Whether it is valid JSON is found out when it is decoded.
// It is counted before it is decoded: decoding lists of empty objects allocates 220
// times the length of a body, and this nothing.
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

// stringEnd returns where the string ends that begins at a quotation mark.
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

// checkEvent is for what checkShape cannot see: bodies in YAML and protobuf, and
// what patches have made of an Event.
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

// checkMetadata has the first errors in an Event's metadata answered, if there are
// more than maxErrors. Fewer are found with those of everything else.
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

// anyName is for a name that is checked elsewhere.
func anyName(string, bool) []string { return nil }

func overLimit(what string, limit int) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d %s", limit, what))
}

// mediaTypeOf is the type of a body, in lower case; a body that does not say it is
// read as JSON. Parameters are not looked at: the handler of patches takes a type
// whose parameters are malformed.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return cmp.Or(strings.ToLower(strings.TrimSpace(mediaType)), runtime.ContentTypeJSON)
}

// checkedSerializer has the apiserver's handlers see no Event that checkEvent
// refuses: what they do with one before the storage sees it is what costs too much.
type checkedSerializer struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c checkedSerializer) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return checkedDecoder{c.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type checkedDecoder struct{ runtime.Decoder }

// Decode implements runtime.Decoder. The handlers answer its error as one of the
// decoding.
func (c checkedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := c.Decoder.Decode(data, defaults, into)
	if event, ok := obj.(*corev1.Event); ok && event != nil {
		if refused := checkEvent(event); refused != nil {
			return nil, gvk, refused
		}
	}
	return obj, gvk, err
}
