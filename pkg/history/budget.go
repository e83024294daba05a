package history

import (
	"context"
	"errors"
	"runtime"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/internal/shares"
)

const (
	// maxDecoding is the maximum number of processors that decode.
	maxDecoding = 2
	// maxWaiting is how many queries and followers may wait to decode: more than there are.
	maxWaiting = 1024
	// maxResultsBytes limits the versions of all results, and maxAheadBytes those that followers have
	// decoded before they are read, in bytes of memory. Of each, one tenant has at most a third, and a user
	// of several a quarter (internal/shares: all is in one namespace).
	maxResultsBytes, maxAheadBytes = 16 << 20, 8 << 20
	// reserveBytes is how much a query reserves at a time.
	reserveBytes = 256 << 10
)

// ErrBusy is the error of a query for which there is no memory or place now, since its tenant, or all of
// them, have too much.
var ErrBusy = errors.New("too many queries read the history")

// budget limits what readers take, fairly between tenants. At most half of the processors decode at once.
// It is safe for concurrent use, and needs no stop.
type budget struct {
	decoding       *fairqueue.Turns
	results, ahead *shares.Shares
}

func newBudget() (*budget, error) {
	processors, rest := runtime.GOMAXPROCS(0), 0
	if processors == 1 {
		rest = 1
	}
	count := min(max(processors/2, 1), maxDecoding)
	turns, err := fairqueue.NewTurns("history", count, count, rest, maxWaiting)
	return &budget{decoding: turns, results: shares.New(maxResultsBytes), ahead: shares.New(maxAheadBytes)}, err
}

// decode calls a function when it is the turn of its caller. A function decodes one block or one run, so
// that nobody waits for long. Its error is that of the function, the cause of ctx, or ErrBusy.
func (b *budget) decode(ctx context.Context, caller shares.Flow, decode func() error) (err error) {
	called := b.decoding.Run(ctx, caller, func() { err = decode() })
	switch {
	case called:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return ErrBusy
}

// reservation is what a query has reserved of the memory of results. One goroutine at a time uses it.
type reservation struct {
	of    *shares.Shares
	flow  shares.Flow
	bytes int64
}

// grow reserves at least so many bytes in all, or nothing more.
func (r *reservation) grow(to int64) bool {
	if to <= r.bytes {
		return true
	}
	more := (to - r.bytes + reserveBytes - 1) / reserveBytes * reserveBytes
	if !r.of.Acquire(r.flow, more) {
		return false
	}
	r.bytes += more
	return true
}

// shrink releases what is more than so many bytes.
func (r *reservation) shrink(to int64) {
	if to < r.bytes {
		r.of.Release(r.flow, r.bytes-to)
		r.bytes = to
	}
}

// release releases all. It may be called again.
func (r *reservation) release() {
	r.shrink(0)
}
