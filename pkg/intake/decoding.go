package intake

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Upper bounds of what a request allocates for each byte of its body and of the view:
// to decode, apply a patch, validate and encode the response.
// TestDecodingAllocatesNoMoreThanItReserves measures them. The number of values of a
// body in JSON or protobuf is limited (shape.go), that of one in YAML is not.
const (
	jsonFactor    = 64
	yamlFactor    = 900
	smallFactor   = 600 // in addition, for the first smallBody bytes
	smallBody     = 4 << 10
	copiesFactor  = 32
	smallCost     = 4 << 20 // covers JSON bodies up to 25 KiB, except JSON patches
	decodingLimit = time.Second
)

// decodeBudget limits the bytes that all decoding may allocate at once. Half of it is
// for small bodies, so that they do not wait for large ones. It is safe for use by many
// goroutines.
type decodeBudget struct {
	small, large *semaphore.Weighted
	each         int64 // size of each half
}

func newDecodeBudget(total int64) *decodeBudget {
	each := max(total/2, 1)
	return &decodeBudget{small: semaphore.NewWeighted(each), large: semaphore.NewWeighted(each), each: each}
}

// isLarge reports whether a cost is reserved in the half for large bodies.
func isLarge(cost int64) bool { return cost > smallCost }

// half returns the half where a cost is reserved, and how much of it is reserved: at
// most the whole half.
func (b *decodeBudget) half(cost int64) (*semaphore.Weighted, int64) {
	if isLarge(cost) {
		return b.large, min(cost, b.each)
	}
	return b.small, min(cost, b.each)
}

// reserve waits up to decodingLimit until so many bytes may be allocated. The error is
// the response.
func (b *decodeBudget) reserve(ctx context.Context, cost int64) (*reservation, error) {
	if r, err := b.tryReserve(cost); err == nil {
		return r, nil
	}
	half, cost := b.half(cost)
	ctx, cancel := context.WithTimeout(ctx, decodingLimit)
	defer cancel()
	if err := half.Acquire(ctx, cost); err != nil {
		return nil, errDecoding()
	}
	return &reservation{half: half, cost: cost}, nil
}

// tryReserve is reserve without waiting.
func (b *decodeBudget) tryReserve(cost int64) (*reservation, error) {
	half, cost := b.half(cost)
	if !half.TryAcquire(cost) {
		return nil, errDecoding()
	}
	return &reservation{half: half, cost: cost}, nil
}

// reservation is a part of a budget that is reserved. It is safe for use by many goroutines; nil reserves nothing.
type reservation struct {
	half     *semaphore.Weighted
	cost     int64
	released atomic.Bool
}

// release may be called more than once.
func (r *reservation) release() {
	if r != nil && !r.released.Swap(true) {
		r.half.Release(r.cost)
	}
}

func errDecoding() error {
	return apierrors.NewTooManyRequests("too many requests are being decoded", retryAfterSeconds)
}

// decoding is the part of the budget that a request reserves, from when its body has
// been read until there is an occurrence. It reserves nothing while it waits for a name
// or for a write. The zero value is that of a request without a body.
type decoding struct {
	budget *decodeBudget // nil without a body
	cost   int64
	patch  bool // decoded when the view that it patches is known
	// reserved is nil while nothing is reserved by withReservation.
	reserved *reservation
}

// end is called when the handler has decoded the body.
func (d *decoding) end() { d.reserved.release() }

// reservePatch reserves the cost of applying a patch to an Event of that size.
func (d *decoding) reservePatch(ctx context.Context, size int64) (*reservation, error) {
	if !d.patch {
		return nil, nil
	}
	cost := d.cost + jsonFactor*size
	if isLarge(cost) && !isLarge(d.cost) {
		return d.budget.tryReserve(cost) // it must not wait with a seat for small bodies
	}
	return d.budget.reserve(ctx, cost)
}

// withBodyCheck returns a wrapper for handlers: it refuses bodies with too much
// structure, and computes the cost of the others. They have been read by then.
func (b *decodeBudget) withBodyCheck(maxBody int64) func(http.HandlerFunc) http.HandlerFunc {
	return func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			// A response is small, and compressing it takes a megabyte.
			req.Header.Del("Accept-Encoding")
			mediaType, body := mediaTypeOf(req), bodyOf(req).all
			if err := checkBody(mediaType, body); err != nil {
				refuse(w, req, err)
				return
			}
			callOf(req.Context()).decoding = decoding{budget: b, cost: costOf(mediaType, int64(len(body)), maxBody), patch: req.Method == http.MethodPatch}
			next(w, req)
		}
	}
}

// withReservation calls a handler when its body may be decoded. The storage reserves the
// cost of a patch, when it has the view.
func withReservation(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if d := &callOf(req.Context()).decoding; d.budget != nil && !d.patch {
			var err error
			if d.reserved, err = d.budget.reserve(req.Context(), d.cost); err != nil {
				refuse(w, req, err)
				return
			}
			defer d.end()
		}
		next(w, req)
	}
}

// MaxDecodeBytesOf is the maximum that one request reserves, to decode a body of any
// type and apply it to a view of the same size, where maxBody is the limit of a body.
func MaxDecodeBytesOf(maxBody int64) int64 {
	return max(
		costOf(runtime.ContentTypeYAML, min(maxBody, maxYAMLBytes), maxBody),
		costOf(string(types.JSONPatchType), maxBody, maxBody)+jsonFactor*maxBody,
	)
}

// costOf is an upper bound of what decoding a body allocates.
func costOf(mediaType string, size, maxBody int64) int64 {
	cost := smallFactor * min(size, smallBody)
	switch mediaType {
	case runtime.ContentTypeYAML:
		return cost + yamlFactor*size
	case string(types.JSONPatchType):
		cost += copiesFactor * copyLimit(maxBody)
	}
	return cost + jsonFactor*size
}
