package intake

import "context"

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
