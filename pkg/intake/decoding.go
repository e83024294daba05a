package intake

import (
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// What decoding allocates, at most, and applying a patch to a view, validating what
// comes of it and writing the answer: so many bytes for each byte of the body and of
// the view. TestDecodingAllocatesNoMoreThanItReserves measures them. A body in JSON is
// bounded in its number of values (shape.go), the others are not.
const (
	jsonFactor    = 64
	protoFactor   = 400
	yamlFactor    = 900
	smallFactor   = 600 // beside these, of the first kilobytes
	smallBody     = 4 << 10
	copiesFactor  = 32
	smallCost     = 4 << 20 // of all bodies in JSON up to 25 KiB, but JSON patches
	decodingLimit = time.Second
)

// decodeBudget bounds the bytes that all decoding may allocate at once. Half of it is
// for small bodies, so that a few large ones keep nobody else waiting. It is safe for
// use by many goroutines.
type decodeBudget struct {
	small, large *semaphore.Weighted
	each         int64 // of the two
}

func newDecodeBudget(total int64) *decodeBudget {
	each := max(total/2, 1)
	return &decodeBudget{small: semaphore.NewWeighted(each), large: semaphore.NewWeighted(each), each: each}
}

// isLarge tells whether decoding that costs so much may have to wait for that of
// other large bodies.
func isLarge(cost int64) bool { return cost > smallCost }

// half is where a cost is reserved, and how much of it: what costs more than there is
// reserves all.
func (b *decodeBudget) half(cost int64) (*semaphore.Weighted, int64) {
	if isLarge(cost) {
		return b.large, min(cost, b.each)
	}
	return b.small, min(cost, b.each)
}

// reserve waits until so many bytes may be allocated, for decodingLimit at most: the
// error is the answer then. The function that is returned gives the bytes back; it may
// be called more than once.
func (b *decodeBudget) reserve(ctx context.Context, cost int64) (release func(), err error) {
	half, cost := b.half(cost)
	ctx, cancel := context.WithTimeout(ctx, decodingLimit)
	defer cancel()
	if err := half.Acquire(ctx, cost); err != nil {
		return nil, errDecoding()
	}
	return sync.OnceFunc(func() { half.Release(cost) }), nil
}

// tryReserve is reserve without a wait.
func (b *decodeBudget) tryReserve(cost int64) (release func(), err error) {
	half, cost := b.half(cost)
	if !half.TryAcquire(cost) {
		return nil, errDecoding()
	}
	return sync.OnceFunc(func() { half.Release(cost) }), nil
}

func errDecoding() error {
	return apierrors.NewTooManyRequests("too many requests are being decoded", retryAfterSeconds)
}

// decoding is what a request reserves of the budget, from when its body has been read
// until an occurrence was made of it. It reserves nothing while it waits: for the turn
// at a name, or for a write.
type decoding struct {
	budget *decodeBudget
	cost   int64
	patch  bool // and decoded when the view that it patches is known
	// release is nil while nothing is reserved by begin.
	release func()
}

// end is called when the handler has decoded the body.
func (d *decoding) end() {
	if d != nil && d.release != nil {
		d.release()
	}
}

// patching reserves what it costs to apply a patch to an Event of that size.
func (d *decoding) patching(ctx context.Context, size int64) (release func(), err error) {
	if d == nil || !d.patch {
		return func() {}, nil
	}
	cost := d.cost + jsonFactor*size
	if isLarge(cost) && !isLarge(d.cost) {
		return d.budget.tryReserve(cost) // its seat is not one of those that wait
	}
	return d.budget.reserve(ctx, cost)
}

// checked returns what wraps a handler that is to be called with bodies that are worth
// decoding. They have been read by then.
func (b *decodeBudget) checked(maxBody int64) func(http.HandlerFunc) http.HandlerFunc {
	return func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			// An Event is small, and what compresses an answer takes a megabyte.
			req.Header.Del("Accept-Encoding")
			mediaType, body := mediaTypeOf(req), wholeBody(req)
			if err := checkBody(mediaType, body); err != nil {
				refuse(w, req, err)
				return
			}
			callOf(req.Context()).decoding = &decoding{budget: b, cost: costOf(mediaType, int64(len(body)), maxBody), patch: req.Method == http.MethodPatch}
			next(w, req)
		}
	}
}

// reserved returns a handler that is called when its body may be decoded. A patch
// is decoded when the storage knows what it is applied to.
func reserved(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if d := callOf(req.Context()).decoding; d != nil && !d.patch {
			var err error
			if d.release, err = d.budget.reserve(req.Context(), d.cost); err != nil {
				refuse(w, req, err)
				return
			}
			defer d.end()
		}
		next(w, req)
	}
}

// MaxDecodeBytesOf is the most that decoding one body of any kind reserves, and
// applying it to a view of the same size, when bodies may have so many bytes.
func MaxDecodeBytesOf(maxBody int64) int64 {
	return max(
		costOf(runtime.ContentTypeProtobuf, maxBody, maxBody),
		costOf(runtime.ContentTypeYAML, min(maxBody, maxYAMLBytes), maxBody),
		costOf(string(types.JSONPatchType), maxBody, maxBody)+jsonFactor*maxBody,
	)
}

// costOf is the most that decoding a body allocates.
func costOf(mediaType string, size, maxBody int64) int64 {
	cost := smallFactor * min(size, smallBody)
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		return cost + protoFactor*size
	case runtime.ContentTypeYAML:
		return cost + yamlFactor*size
	case string(types.JSONPatchType):
		cost += copiesFactor * copyLimit(maxBody)
	}
	return cost + jsonFactor*size
}
