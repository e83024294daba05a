package sink

import (
	"errors"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// A client, a callback and a logger are code of others, which may never return
// and ignore its context. A worker that runs such code can be abandoned: its
// series goes back to the schedule, another worker takes its place, and when it
// returns at last it touches nothing but the list of abandoned requests.

// requestGrace is how long after its deadline a request may take to return. After
// the end of Close's context it has grace.Period.
const requestGrace = time.Second

// errNotReturned is why there is no request where abandoned ones are too many.
var errNotReturned = errors.New("earlier requests have not returned, and ignore that their time is over")

// requests are those that have not returned. Some are abandoned: they ignored that
// their time was over. Whoever owns it guards it.
type requests struct {
	limit     int            // of abandoned ones
	inFlight  map[string]int // by namespace, abandoned ones too
	abandoned map[occurrence.Key]struct{}
	// abandonedIn is how many of them there are in each namespace.
	abandonedIn map[string]int
}

func newRequests(limit int) *requests {
	return &requests{
		limit: limit, inFlight: make(map[string]int),
		abandoned: make(map[occurrence.Key]struct{}), abandonedIn: make(map[string]int),
	}
}

func (r *requests) isFull() bool { return len(r.abandoned) >= r.limit }

// allow tells whether there may be one for an Event. Each abandoned one keeps a
// goroutine, so there is none beside it for its Event, and a namespace may have a
// part of those that others leave.
func (r *requests) allow(a *counter.Counter) bool {
	_, runs := r.abandoned[a.Key]
	others := len(r.abandoned) - r.abandonedIn[a.Namespace]
	return !runs && !r.isFull() && r.inFlight[a.Namespace] < max(1, int(scheduler.NamespaceShare*float64(r.limit-others)))
}

func (r *requests) begin(a *counter.Counter) { r.inFlight[a.Namespace]++ }

func (r *requests) abandon(a *counter.Counter) {
	r.abandoned[a.Key] = struct{}{}
	r.abandonedIn[a.Namespace]++
}

func (r *requests) end(a *counter.Counter, abandoned bool) {
	countDown(r.inFlight, a.Namespace)
	if abandoned {
		delete(r.abandoned, a.Key)
		countDown(r.abandonedIn, a.Namespace)
	}
}

func countDown(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// call makes a request. It returns false if the worker was abandoned, or the sink
// stops: then there is nothing left to do for it.
func (w *worker) call(r *request) (a apiclient.Answer, ok bool) {
	switch allowed, ok := w.beginRequest(r); {
	case !ok:
		return apiclient.Answer{}, false
	case !allowed:
		return apiclient.Answer{Class: apiclient.ClassRetry, Err: errNotReturned, Unsent: true}, true
	}
	late := time.AfterFunc(w.sink.options.RequestTimeout+requestGrace, func() { w.replace(r) })
	defer late.Stop()
	a = w.sink.ask(w.ctx, r)
	return a, w.endCall()
}

// beginRequest tells whether a request may be made, and false if none may be made
// any more.
func (w *worker) beginRequest(r *request) (allowed, ok bool) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.forsaken {
		return false, false
	}
	if !w.sink.requests.allow(w.series.counter) {
		return false, true
	}
	w.sink.metrics.inFlight.Inc()
	w.sink.requests.begin(w.series.counter)
	w.request, w.requested, w.inCall = r, w.series.counter, true
	w.began = time.Now()
	return true, true
}

// callOut runs code of others that makes no request. It returns false if the
// worker was abandoned.
func (w *worker) callOut(call func()) bool {
	w.sink.mu.Lock()
	w.inCall = true
	if w.sink.forsaken {
		w.abandon() // nobody waits for it any more
	}
	w.sink.mu.Unlock()
	call()
	return w.endCall()
}

// endCall takes note that code of others has returned. It returns false if the
// worker was abandoned.
func (w *worker) endCall() bool {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	w.inCall = false
	if a := w.requested; a != nil {
		w.requested = nil
		w.sink.requests.end(a, w.abandoned)
		if !w.abandoned {
			w.sink.metrics.inFlight.Dec()
		} else if owed := w.sink.pending[a.Key]; owed != nil && !w.sink.stopped {
			// The answer is not looked at: what it was for may be settled.
			now := time.Now()
			owed.retryAt = now
			w.sink.arrange(owed, now)
		}
	}
	return !w.abandoned
}

// abandon leaves a worker alone. The mutex must be held.
func (w *worker) abandon() {
	w.abandoned = true
	if w.requested != nil {
		w.sink.metrics.inFlight.Dec()
		w.sink.requests.abandon(w.requested)
	}
	w.series, w.request = nil, nil
	w.remove()
}

// replace abandons the worker if it still waits for an answer, and has another one
// go on as after a lost apiclient.Answer. If there are as many abandoned requests as there
// may be, it tries again: until then the worker stays where it is.
func (w *worker) replace(r *request) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	switch {
	case !w.inCall || w.abandoned || w.request != r || w.sink.stopped:
	case w.sink.requests.isFull():
		time.AfterFunc(requestGrace, func() { w.replace(r) })
	default:
		lost := apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer, Began: w.began}
		next := &worker{sink: w.sink, ctx: w.ctx, series: w.series}
		next.add()
		w.abandon()
		go next.work(func() {
			next.callOut(func() { w.sink.errorLog.abandoned(lost.Err) })
			next.follow(r, lost)
		})
	}
}

// abandonAll leaves alone all workers that run code of others, now or from now on.
// What they have asked for may have taken effect. The mutex must be held.
func (s *Sink) abandonAll() {
	s.forsaken = true
	for w := range s.workers {
		if !w.inCall {
			continue // it ends soon, or calls out, and is abandoned then
		}
		if w.requested != nil {
			w.series.apply(w.request, apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer}, time.Time{})
		}
		w.abandon()
	}
}
