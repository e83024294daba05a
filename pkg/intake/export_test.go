package intake

import "github.com/eventd/eventd/pkg/occurrence"

// Unnamed reports whether a replica that has lost the answer to a POST of this body
// takes it for one whose name is generated.
func Unnamed(api occurrence.API, mediaType string, body []byte) bool {
	return unnamed(mediaType, body, api.GroupVersion().WithKind("Event"))
}
