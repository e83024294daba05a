package remote

import (
	"slices"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// queue has the pending items of one target. The mutex of the sink guards it.
type queue struct {
	target target
	// forming are the items that were never sent, oldest first, and waiting the same by their
	// series: an occurrence may still be merged into them.
	forming []*item
	waiting map[occurrence.Digest]*item
	// retrying are those of an attempt that has failed.
	retrying []*item
	call     *call // in flight, nil if there is none
	bytes    int64 // of all
	maxItems int   // of a batch; less than in the options if eventd takes no more

	began     time.Time // when the oldest forming item was added
	failures  int       // of whole batches, since the last success
	notBefore time.Time // after a failure
	timer     *time.Timer
	queued    bool // in Sink.runnable
}

func newQueue(to target, maxItems int) *queue {
	return &queue{target: to, waiting: make(map[occurrence.Digest]*item), maxItems: maxItems}
}

func (q *queue) add(i *item) {
	if len(q.forming) == 0 {
		q.began = time.Now()
	}
	q.forming = append(q.forming, i)
	q.waiting[i.series] = i
	q.bytes += i.bytes
}

// removeForming removes an item that has not been sent.
func (q *queue) removeForming(at int) {
	i := q.forming[at]
	q.forming = slices.Delete(q.forming, at, at+1)
	if q.waiting[i.series] == i {
		delete(q.waiting, i.series)
	}
}

// batch removes and returns the items of the next batch: those whose retry is due, and then forming ones.
func (q *queue) batch(now time.Time, maxBytes int64) (out []*item) {
	var bytes int64
	fits := func(i *item) bool {
		if len(out) == q.maxItems || len(out) > 0 && bytes+i.bytes > maxBytes {
			return false
		}
		bytes += i.bytes
		return true
	}
	later := q.retrying[:0]
	for _, i := range q.retrying {
		if !i.retryAt.After(now) && fits(i) {
			out = append(out, i)
		} else {
			later = append(later, i)
		}
	}
	clear(q.retrying[len(later):])
	q.retrying = later
	n := 0
	for n < len(q.forming) && fits(q.forming[n]) {
		i := q.forming[n]
		if out = append(out, i); q.waiting[i.series] == i {
			delete(q.waiting, i.series)
		}
		n++
	}
	q.forming = slices.Delete(q.forming, 0, n)
	if len(q.forming) > 0 {
		q.began = time.Time{} // those that did not fit are due at once
	}
	return out
}

// due returns when the next batch is to be sent. There must be something to send.
func (q *queue) due(delay time.Duration, flushing bool) (at time.Time) {
	first := true
	if len(q.forming) > 0 {
		first = false
		if at = q.began; len(q.forming) < q.maxItems && !flushing {
			at = at.Add(delay)
		}
	}
	for _, i := range q.retrying {
		if first || i.retryAt.Before(at) {
			at, first = i.retryAt, false
		}
	}
	if at.Before(q.notBefore) {
		return q.notBefore
	}
	return at
}

func (q *queue) isEmpty() bool { return len(q.forming)+len(q.retrying) == 0 && q.call == nil }
