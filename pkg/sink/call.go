package sink

import (
	"errors"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// Clients, callbacks and loggers are external code, which may never return and may ignore its
// context. A worker that runs such code can be abandoned: its series is returned to the
// scheduler and another worker replaces it. When the code returns, the worker removes itself
// from the abandoned requests and ends.

// requestGrace is the time between the timeout of a request and its abandonment. After the end
// of Close's context it is grace.Period.
const requestGrace = time.Second

// lateInterval is how often onLate looks at a request again.
const lateInterval = time.Second

// abandonAfter returns when a request is abandoned, from its beginning.
func (o *Options) abandonAfter() time.Duration { return o.RequestTimeout + requestGrace }

// errNotReturned: too many requests are abandoned to send another one.
var errNotReturned = errors.New("earlier requests ignore their timeout and have not returned")

// requests are the requests that have not returned. Abandoned ones ignore their timeout. Its
// owner guards it.
type requests struct {
	limit     int            // of abandoned ones
	inFlight  map[string]int // by namespace, abandoned ones too
	abandoned map[occurrence.Key]struct{}
	// abandonedIn counts them by namespace.
	abandonedIn map[string]int
}

func newRequests(limit int) *requests {
	return &requests{
		limit: limit, inFlight: make(map[string]int),
		abandoned: make(map[occurrence.Key]struct{}), abandonedIn: make(map[string]int),
	}
}

func (r *requests) isFull() bool { return len(r.abandoned) >= r.limit }

// allow reports whether a request may be sent for a counter. Each abandoned one keeps a
// goroutine. So there is no other request for its Event, and a namespace may use a part of
// the requests that others leave.
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

// call sends a request. It returns false if the worker was abandoned or the sink stops.
func (w *worker) call(r *request) (a apiclient.Answer, ok bool) {
	switch allowed, ok := w.beginRequest(r); {
	case !ok:
		return apiclient.Answer{}, false
	case !allowed:
		return apiclient.Answer{Class: apiclient.ClassRetry, Err: errNotReturned, Unsent: true}, true
	}
	a = w.sink.send(w.ctx, r)
	return a, w.endCall()
}

// beginRequest reports whether a request may be sent. ok is false if no more may be sent.
func (w *worker) beginRequest(r *request) (allowed, ok bool) {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.abandoning {
		return false, false
	}
	if !w.sink.requests.allow(w.series.counter) {
		return false, true
	}
	w.sink.metrics.inFlight.Inc()
	w.sink.requests.begin(w.series.counter)
	w.request, w.requested, w.inCall = r, w.series.counter, true
	w.began = time.Now()
	o := &w.sink.options
	w.late = time.AfterFunc(min(o.SlowAnswer, o.abandonAfter()), func() { w.onLate(r) })
	return true, true
}

// callExternal runs external code that sends no request, unless the worker is abandoned. It
// returns false if it is abandoned now.
func (w *worker) callExternal(call func()) bool {
	w.sink.mu.Lock()
	if w.abandoned {
		w.sink.mu.Unlock()
		return false
	}
	w.inCall = true
	if w.sink.abandoning {
		w.abandon() // Close does not wait for it any more
	}
	w.sink.mu.Unlock()
	call()
	return w.endCall()
}

// endCall records that external code has returned. It returns false if the worker was
// abandoned.
func (w *worker) endCall() bool {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	w.inCall = false
	if a := w.requested; a != nil {
		w.requested = nil
		w.late.Stop()
		w.sink.requests.end(a, w.abandoned)
		if !w.abandoned {
			w.sink.metrics.inFlight.Dec()
		} else if p := w.sink.pending[a.Key]; p != nil && !w.sink.stopped {
			// The answer is ignored: its occurrences may have settled.
			now := time.Now()
			p.retryAt = now
			w.sink.reschedule(p, now)
		}
	}
	return !w.abandoned
}

// abandon abandons the worker. The mutex must be held.
func (w *worker) abandon() {
	w.abandoned = true
	if w.requested != nil {
		w.sink.metrics.inFlight.Dec()
		w.sink.requests.abandon(w.requested)
	}
	w.series, w.request = nil, nil
	w.remove()
}

// onLate runs when a request has had no answer for SlowAnswer, and then every lateInterval. It
// reports the request to the scheduler until abandonAfter is over. Then it abandons the request,
// once fewer than the limit are abandoned.
func (w *worker) onLate(r *request) {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.inCall || w.abandoned || w.request != r || s.stopped {
		return
	}
	now := time.Now()
	left := w.began.Add(s.options.abandonAfter()).Sub(now)
	switch {
	case left > 0:
		s.scheduler.ReportLate(&w.series.job, w.began)
		s.wakeWorkers(now)
		w.late.Reset(min(left, lateInterval))
	case s.requests.isFull():
		w.late.Reset(lateInterval)
	default:
		w.replace(r)
	}
}

// replace abandons the worker, and starts another one that handles the answer as lost. The mutex
// must be held.
func (w *worker) replace(r *request) {
	lost := apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer, Began: w.began}
	next := &worker{sink: w.sink, ctx: w.ctx, series: w.series}
	next.add()
	w.abandon()
	go next.work(func() {
		next.handleAnswer(r, lost) // before the logger, which may never return
		next.callExternal(func() { w.sink.errorLog.abandoned(lost.Err) })
	})
}

// abandonAll abandons all workers that run external code, now or from now on. Their requests
// may have taken effect. The mutex must be held.
func (s *Sink) abandonAll() {
	s.abandoning = true
	for w := range s.workers {
		if !w.inCall {
			continue // it ends soon, or is abandoned in callExternal
		}
		if w.requested != nil {
			w.series.apply(w.request, apiclient.Answer{Class: apiclient.ClassLost, Err: apiclient.ErrNoAnswer}, time.Time{})
		}
		w.abandon()
	}
}
