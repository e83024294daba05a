package intake

import (
	"context"

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
	return i.decoding.reserve(ctx, cost)
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
