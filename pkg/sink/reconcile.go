package sink

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/scheduler"
)

// maxSteps bounds the requests of a series in a row without a write. After that it waits as
// after a failure: two writers of one Event conflict now and then, but not forever. It is
// more than what it takes to try every suffix.
const maxSteps = 2*identity.MaxSuffix + 6

// reconcile sends the requests that a series needs, until one of them has written what is
// pending or the series has to wait. It begins with the given action.
func (w *worker) reconcile(m action) {
	for steps := 1; ; steps++ {
		if m.draft != nil {
			m = w.plan(m.draft)
		}
		if !w.report(m.settled) || m.done {
			return
		}
		if m.request != nil {
			if next := w.execute(m.request); next == stepEnd {
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

// plan plans the request of a draft. That takes time, so it does not hold the mutex.
func (w *worker) plan(d *draft) action {
	d.Draft.Plan()
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit(w.series, d)
}

// execute sends a request, and handles the answer.
func (w *worker) execute(r *request) step {
	if w.ctx.Err() != nil {
		return stepEnd // the sink stops, and Close settles what is left
	}
	if r.RandomName != counter.NameDerived {
		w.sink.metrics.unique.WithLabelValues(string(r.RandomName)).Inc()
		if !w.callExternal(func() { w.sink.errorLog.drawn(r) }) {
			return stepEnd
		}
	}
	a, ok := w.call(r)
	if !ok {
		return stepEnd
	}
	w.request = nil
	return w.handleAnswer(r, a)
}

// handleAnswer handles an answer and reports what has settled.
func (w *worker) handleAnswer(r *request, a apiclient.Answer) step {
	w.sink.countAnswer(r, a)
	out, next, denied := w.sink.handle(w.series, r, a)
	if denied && !w.callExternal(func() { w.sink.errorLog.denied(r, a) }) {
		return stepEnd
	}
	if !w.report(out) || w.ctx.Err() != nil {
		return stepEnd
	}
	if next == stepRetry {
		w.retry(a)
		return stepEnd
	}
	return next
}

// step is what follows an answer.
type step uint8

const (
	stepNext  step = iota // the next request
	stepRetry             // the next request, after a delay
	stepEnd               // return the series to the scheduler
)

// action is the next thing to do for a series: plan a draft, or report what has settled and
// send a request, if there is one. done: nothing is left to do now.
type action struct {
	draft   *draft
	settled []counter.Settled
	request *request
	done    bool
}

// draft is a request that is being planned, and how it may be sent.
type draft struct {
	*counter.Draft
	access writeAccess
	first  bool // see firstRequests
}

// request is a request to the apiserver.
type request struct {
	*counter.Request
	verb  apiclient.Verb
	first bool // see firstRequests
	// sequence is that of the newest occurrence of the sink when it was planned.
	sequence uint64
}

// next returns the next action for a series. The mutex must be held.
func (s *Sink) next(p *pendingSeries, now time.Time) (m action) {
	if p.ready().After(now) {
		return action{done: true}
	}
	v := s.scheduler.Refusal(&p.job)
	answered := p.refused && p.recordedUpTo() <= v.UpTo // while it waited
	p.refused = false
	s.setDeferred(p, false)
	if p.counter.Creates() && (answered || v.Until.After(now)) {
		return action{settled: s.applyRefusal(p, v), done: true}
	}
	if len(p.counter.Pending()) > 0 {
		access := s.access.lookup(p.counter.Namespace, p.counter.API(), now)
		first := p.unknown
		p.unknown = false
		if first && access.Change && !access.Unmarked && s.first.isRead(p.counter.Namespace) {
			p.counter.Stale()
		}
		var d *counter.Draft
		if d, m.settled = p.counter.Begin(access.Access); d != nil {
			if p.counter.Creates() {
				s.scheduler.Postpone(&p.job, now.Add(s.options.NamespaceRefusedFor)) // one request is sent
			}
			return action{draft: &draft{d, access, first}}
		}
	}
	m.done = s.release(p)
	return m
}

// commit returns the action that was planned. The mutex must be held.
func (s *Sink) commit(p *pendingSeries, d *draft) (m action) {
	r, out := p.counter.Commit(d.Draft)
	m.settled = out
	if r != nil {
		m.request = &request{r, d.access.verb(r.Kind), d.first, s.sequence}
	}
	m.done = s.release(p)
	return m
}

// handle evaluates an answer. It returns what has settled, the next step, and whether a right
// is denied that others may replace.
func (s *Sink) handle(p *pendingSeries, r *request, a apiclient.Answer) (out []counter.Settled, next step, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.reportAnswer(p, r, a, now)
	confirmed := s.scheduler.OverdueBefore(now, s.options.ForbiddenFor)
	if denied = s.updateAccess(p, r, a, confirmed, now); !denied {
		out, next = p.apply(r, a, confirmed)
	}
	if s.release(p) {
		next = stepEnd
	}
	s.wakeWorkers(now)
	s.metrics.committed(out, now)
	return out, next, denied
}

// reportAnswer records what an answer says about the apiserver, the namespace and the series. The
// mutex must be held.
func (s *Sink) reportAnswer(p *pendingSeries, r *request, a apiclient.Answer, now time.Time) {
	s.scheduler.Report(&p.job, scheduler.Result{
		Began: a.Began, Unsent: a.Unsent, Unreachable: a.Class == apiclient.ClassUnreachable, Answered: a.Code != 0,
		Overloaded: a.Code == http.StatusTooManyRequests || a.Code == http.StatusServiceUnavailable,
	}, now)
	if r.first {
		s.first.answered(r.Namespace, r.verb, a.Class)
	}
	switch {
	case a.Reason == occurrence.NamespaceNotFound, a.Reason == occurrence.NamespaceTerminating:
		s.scheduler.Refuse(&p.job, scheduler.Refusal{Reason: a.Reason, Err: a.Err, UpTo: r.sequence, Until: now.Add(s.options.NamespaceRefusedFor)})
	case r.verb == apiclient.VerbCreate && (a.Class == apiclient.ClassOK || a.Class == apiclient.ClassExists):
		s.scheduler.Created(&p.job, r.sequence)
	}
}

// retry schedules the next attempt of a series, and drops what could not be written for too
// long. If the apiserver is unreachable, all series wait together and nothing is dropped.
func (w *worker) retry(last apiclient.Answer) {
	w.sink.metrics.retries.WithLabelValues(string(last.Class)).Inc()
	if last.Class == apiclient.ClassUnreachable {
		w.callExternal(func() { w.sink.errorLog.unreachable(last.Err) })
		return
	}
	w.sink.mu.Lock()
	out := w.sink.scheduleRetry(w.series, last)
	w.sink.mu.Unlock()
	w.report(out)
}

// scheduleRetry is retry with the mutex held. It returns what has settled.
func (s *Sink) scheduleRetry(p *pendingSeries, last apiclient.Answer) []counter.Settled {
	now := time.Now()
	p.failures++
	p.retryAt = now.Add(min(max(last.RetryAfter, s.backoff(p.failures)), s.options.RetryFor))
	tooOld := p.deadlines.before(s.scheduler.OverdueBefore(now, s.options.RetryFor))
	out := p.counter.Drop(tooOld, occurrence.RetriesExhausted, last.Err)
	s.release(p)
	return out
}

// send sends a request. It runs external code: the client and the logger.
func (s *Sink) send(ctx context.Context, r *request) apiclient.Answer {
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

// timed adds to an answer how long it took.
func (s *Sink) timed(ctx context.Context, r *request, a apiclient.Answer, start time.Time) apiclient.Answer {
	a.Began, a.Took = start, time.Since(start)
	if a.Class != apiclient.ClassOK {
		klog.FromContext(ctx).V(4).Info("Event not written", "verb", a.Verb, "event", klog.KRef(r.Namespace, r.Name),
			"class", a.Class, "reason", a.Reason, "err", a.Err)
	}
	return a
}

// countAnswer counts an answer in the metrics.
func (s *Sink) countAnswer(r *request, a apiclient.Answer) {
	if errors.Is(a.Err, errNotReturned) {
		return // there was no request
	}
	s.metrics.answered(cmp.Or(a.Verb, r.verb), a, a.Took.Seconds())
	if a.Class != apiclient.ClassOK {
		s.metrics.failed.WithLabelValues(string(a.Class)).Inc()
	}
}

// backoff returns the delay after a number of failures in a row.
func (s *Sink) backoff(failures int) time.Duration {
	return sleep.Backoff(s.options.RetryBaseDelay, s.options.RetryMaxDelay, failures)
}

// apply reports an answer to the counter. It returns what has settled, and the next step. A
// denial by RBAC applies to what has a deadline before the given time.
func (p *pendingSeries) apply(r *request, a apiclient.Answer, confirmed time.Time) ([]counter.Settled, step) {
	a.Verb = cmp.Or(a.Verb, r.verb) // there may have been no answer
	switch a.Class {
	case apiclient.ClassOK:
		if !a.Verb.IsRead() {
			p.failures = 0
			return p.counter.Succeeded(r.Request, a.Object), stepEnd
		}
		return p.counter.Read(a.Object), stepNext
	case apiclient.ClassExists:
		p.counter.Stale()
		return nil, stepNext
	case apiclient.ClassNotFound:
		return p.counter.Gone(a.Err), stepNext
	case apiclient.ClassRefused:
		if a.Denied && !p.deadlines.first().Before(confirmed) {
			return nil, stepRetry
		}
		return p.counter.Refused(r.Request, a.Verb.IsRead(), a.Reason, a.Err), stepNext
	case apiclient.ClassUnreachable:
		p.counter.Unsent(r.Request)
	case apiclient.ClassLost:
		if !a.Verb.IsRead() {
			p.counter.Lost(r.Request)
		}
	}
	return nil, stepRetry
}
