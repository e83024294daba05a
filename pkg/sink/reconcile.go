package sink

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// maxSteps bounds the requests that one series may make in a row until one of them
// writes, before it has to wait as after a failure: two writers of one Event
// conflict now and then, but not forever. It is more than what it takes to try
// every suffix.
const maxSteps = 2*identity.MaxSuffix + 6

// reconcile makes the requests that a series needs, of which the first is given or drafted,
// until one of them has written what is due, or the series has to wait. It is in one worker
// at a time.
func (w *worker) reconcile(m move) {
	for steps := 1; ; steps++ {
		if m.draft != nil {
			m = w.plan(m.draft)
		}
		if !w.tell(m.settled) || m.done {
			return
		}
		if m.request != nil {
			if next := w.make(m.request); next == stepEnd {
				return
			}
			if steps >= maxSteps {
				w.retry(apiclient.Answer{Class: apiclient.ClassExists})
				return
			}
			if err := w.sink.scheduler.Wait(w.ctx); err != nil {
				return // the sink stops, and Close settles what is left
			}
		}
		w.sink.mu.Lock()
		m = w.sink.next(w.series, time.Now())
		w.sink.mu.Unlock()
	}
}

// plan makes a move of a draft. That takes time, and so is done without the mutex.
func (w *worker) plan(d *draft) move {
	d.Draft.Plan()
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit(w.series, d)
}

// make makes a request, and does what follows from the answer.
func (w *worker) make(r *request) step {
	if w.ctx.Err() != nil {
		return stepEnd // the sink stops, and Close settles what is left
	}
	if r.RandomName != counter.NameDerived {
		w.sink.metrics.unique.WithLabelValues(string(r.RandomName)).Inc()
		if !w.callOut(func() { w.sink.errorLog.drawn(r) }) {
			return stepEnd
		}
	}
	a, ok := w.call(r)
	if !ok {
		return stepEnd
	}
	w.request = nil
	return w.follow(r, a)
}

// follow does what follows from an answer.
func (w *worker) follow(r *request, a apiclient.Answer) step {
	w.sink.answered(r, a)
	out, next, denied := w.sink.learn(w.series, r, a)
	if denied && !w.callOut(func() { w.sink.errorLog.denied(r, a) }) {
		return stepEnd
	}
	if !w.tell(out) || w.ctx.Err() != nil {
		return stepEnd
	}
	if next == stepWait {
		w.retry(a)
		return stepEnd
	}
	return next
}

// step is what follows an answer.
type step uint8

const (
	stepAsk  step = iota // the next request
	stepWait             // the next request, after a while
	stepEnd              // others have their turn
)

// move is what is to be done for a series: plan a draft, or tell what has settled, and make
// a request, if there is one. When done is set there is nothing left to do now.
type move struct {
	draft   *draft
	settled []counter.Settled
	request *request
	done    bool
}

// draft is a request of a series that is being planned, and how it is to be made.
type draft struct {
	*counter.Draft
	means means
}

// request is a request to the apiserver.
type request struct {
	*counter.Request
	verb apiclient.Verb
	// sequence is the last one of the sink when it was planned.
	sequence uint64
}

// next returns the next move for a series. The mutex must be held.
func (s *Sink) next(owed *series, now time.Time) (m move) {
	if owed.ready().After(now) {
		return move{done: true}
	}
	v := s.scheduler.Refusal(&owed.job)
	answered := owed.refused && owed.counter.Last() <= v.UpTo // while it waited
	owed.refused = false
	s.setDeferred(owed, false)
	if owed.counter.Creates() && (answered || v.Until.After(now)) {
		return move{settled: s.applyRefusal(owed, v), done: true}
	}
	if len(owed.counter.Pending()) > 0 {
		means := s.access.means(owed.counter.Namespace, owed.counter.API(), now)
		var d *counter.Draft
		if d, m.settled = owed.counter.Begin(means.Access); d != nil {
			if owed.counter.Creates() {
				s.scheduler.Postpone(&owed.job, now.Add(s.options.NamespaceRefusedFor)) // one asks
			}
			return move{draft: &draft{d, means}}
		}
	}
	m.done = s.release(owed)
	return m
}

// commit returns the move that was planned. The mutex must be held.
func (s *Sink) commit(owed *series, d *draft) (m move) {
	r, out := owed.counter.Commit(d.Draft)
	m.settled = out
	if r != nil {
		m.request = &request{r, d.means.verb(r.Kind), s.sequence}
	}
	m.done = s.release(owed)
	return m
}

// learn takes an answer. It returns what has settled, what to do next, and whether
// we are denied a right that others may stand in for.
func (s *Sink) learn(owed *series, r *request, a apiclient.Answer) (out []counter.Settled, next step, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.report(owed, r, a, now)
	believed := s.scheduler.OverdueBefore(now, s.options.ForbiddenFor)
	if denied = s.takeAccess(owed, r, a, believed, now); !denied {
		out, next = owed.apply(r, a, believed)
	}
	if s.release(owed) {
		next = stepEnd
	}
	s.wakeWorkers(now)
	s.metrics.committed(out, now)
	return out, next, denied
}

// report records what an answer says about the apiserver, the namespace and the series. The
// mutex must be held.
func (s *Sink) report(owed *series, r *request, a apiclient.Answer, now time.Time) {
	s.scheduler.Report(&owed.job, scheduler.Result{
		Began: a.Began, Unsent: a.Unsent, Unreachable: a.Class == apiclient.ClassUnreachable, Answered: a.Code != 0,
		Overloaded: a.Code == http.StatusTooManyRequests || a.Code == http.StatusServiceUnavailable,
	}, now)
	switch {
	case a.Reason == occurrence.NamespaceNotFound, a.Reason == occurrence.NamespaceTerminating:
		s.scheduler.Refuse(&owed.job, scheduler.Refusal{Reason: a.Reason, Err: a.Err, UpTo: r.sequence, Until: now.Add(s.options.NamespaceRefusedFor)})
	case r.verb == apiclient.VerbCreate && (a.Class == apiclient.ClassOK || a.Class == apiclient.ClassExists):
		s.scheduler.Created(&owed.job, r.sequence)
	}
}

// retry gives up what the apiserver has not taken for too long, and lets the
// rest of a series wait. If the apiserver could not even be reached, all series
// wait together, and none is given up for that.
func (w *worker) retry(last apiclient.Answer) {
	w.sink.metrics.retries.WithLabelValues(string(last.Class)).Inc()
	if last.Class == apiclient.ClassUnreachable {
		w.callOut(func() { w.sink.errorLog.unreachable(last.Err) })
		return
	}
	w.sink.mu.Lock()
	out := w.sink.wait(w.series, last)
	w.sink.mu.Unlock()
	w.tell(out)
}

// wait is retry with the mutex held. It returns what has settled.
func (s *Sink) wait(owed *series, last apiclient.Answer) []counter.Settled {
	now := time.Now()
	owed.failures++
	owed.retryAt = now.Add(min(max(last.RetryAfter, s.backoff(owed.failures)), s.options.RetryFor))
	tooOld := owed.deadlines.before(s.scheduler.OverdueBefore(now, s.options.RetryFor))
	out := owed.counter.Drop(tooOld, occurrence.RetriesExhausted, last.Err)
	s.release(owed)
	return out
}

// ask makes one request. It runs code of others: the client, and a logger.
func (s *Sink) ask(ctx context.Context, r *request) apiclient.Answer {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	start := time.Now()
	switch r.verb {
	case apiclient.VerbCreate:
		object, err := s.client.Create(ctx, r.API, r.Event)
		return s.timed(ctx, r, apiclient.Classify(r.verb, object, err), start)
	case apiclient.VerbGet:
		a, _ := s.get(ctx, r)
		return a
	case apiclient.VerbUpdate:
		return s.update(ctx, r)
	default:
		object, err := s.client.Patch(ctx, r.API, r.Namespace, r.Name, r.Patch)
		return s.timed(ctx, r, apiclient.Classify(r.verb, object, err), start)
	}
}

// timed takes note of how long an answer took.
func (s *Sink) timed(ctx context.Context, r *request, a apiclient.Answer, start time.Time) apiclient.Answer {
	a.Began, a.Took = start, time.Since(start)
	if a.Class != apiclient.ClassOK {
		klog.FromContext(ctx).V(4).Info("Event not written", "verb", a.Verb, "event", klog.KRef(r.Namespace, r.Name),
			"class", a.Class, "reason", a.Reason, "err", a.Err)
	}
	return a
}

// answered counts an answer.
func (s *Sink) answered(r *request, a apiclient.Answer) {
	if errors.Is(a.Err, errNotReturned) {
		return // there was no request
	}
	s.metrics.answered(cmp.Or(a.Verb, r.verb), a, a.Took.Seconds())
	if a.Class != apiclient.ClassOK {
		s.metrics.failed.WithLabelValues(string(a.Class)).Inc()
	}
}

// backoff is the wait after a number of failures in a row.
func (s *Sink) backoff(failures int) time.Duration {
	d, most := s.options.RetryBaseDelay, s.options.RetryMaxDelay
	for ; failures > 1 && d < most; failures-- {
		if d > most/2 {
			d = most
		} else {
			d *= 2
		}
	}
	return d/2 + rand.N(d/2+1)
}

// apply takes an answer. It returns what has settled, and what to do next. A
// refusal that may change is believed about what fell due before the given time.
func (owed *series) apply(r *request, a apiclient.Answer, believed time.Time) ([]counter.Settled, step) {
	account := owed.counter
	a.Verb = cmp.Or(a.Verb, r.verb) // there may have been no answer
	switch a.Class {
	case apiclient.ClassOK:
		if !a.Verb.IsRead() {
			owed.failures = 0
			return account.Succeeded(r.Request, a.Object), stepEnd
		}
		return account.Read(a.Object), stepAsk
	case apiclient.ClassExists:
		account.Stale()
		return nil, stepAsk
	case apiclient.ClassNotFound:
		return account.Gone(a.Err), stepAsk
	case apiclient.ClassRefused:
		if a.Denied && !owed.deadlines.first().Before(believed) {
			return nil, stepWait
		}
		return account.Refused(r.Request, a.Verb.IsRead(), a.Reason, a.Err), stepAsk
	case apiclient.ClassLost:
		if !a.Verb.IsRead() {
			account.Lost(r.Request)
		}
	}
	return nil, stepWait
}
