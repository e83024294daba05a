package sink

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// maxSteps bounds the requests that one series may make in a row before it has
// to wait as after a failure: two writers of one Event conflict now and then,
// but not forever. It is more than what it takes to try every suffix.
const maxSteps = 2*identity.MaxSuffix + 6

// reconcile makes the requests that a series needs until it owes nothing that is
// due or has to wait. It is in one worker at a time.
func (s *Sink) reconcile(ctx context.Context, owed *series) {
	for range maxSteps {
		r, out, done := s.next(owed)
		s.tell(out)
		if done {
			return
		}
		if r == nil {
			continue
		}
		a := s.ask(ctx, r)
		s.mu.Lock()
		now := time.Now()
		s.learn(owed, r, a, now)
		out, retry := owed.apply(r, a, now.Add(-s.options.ForbiddenFor))
		done = s.release(owed)
		s.mu.Unlock()
		s.metrics.committed(out, now)
		s.tell(out)
		switch {
		case done || ctx.Err() != nil:
			return // if the sink stops, Close settles what is left
		case retry:
			s.retry(owed, a)
			return
		}
	}
	s.retry(owed, answer{class: classExists})
}

// next returns the next request for a series, nil if there is something else to
// do first, and what has settled without one. When done is set there is nothing
// left to do now.
func (s *Sink) next(owed *series) (r *request, out []settled, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if owed.ready().After(now) {
		return nil, nil, true
	}
	s.setDeferred(owed, false)
	if no := &owed.job.namespace.standing.verdicts[owed.account.api()]; no.until.After(now) && owed.account.creates() {
		upTo := no.upTo
		if owed.account.awaited() {
			upTo = owed.account.last() // this is the answer
		}
		out = owed.account.giveUp(upTo, no.reason, no.err)
		owed.retryAt = no.until
		s.release(owed)
		return nil, out, true
	}
	r, out = owed.account.next()
	return r, out, s.release(owed)
}

// learn takes from an answer what it says of the apiserver and of the namespace.
// The mutex must be held.
func (s *Sink) learn(owed *series, r *request, a answer, now time.Time) {
	if a.began.IsZero() {
		return // nothing was asked
	}
	n, room := owed.job.namespace, s.schedule.room
	if a.code != 0 {
		room.reached()
	}
	switch {
	case a.class == classUnreachable:
		room.unreachable(a.began, now)
	case a.code == http.StatusTooManyRequests, a.code == http.StatusServiceUnavailable:
		room.overloaded(a.began, now)
	default:
		room.answered(&n.standing, a.began, now)
	}
	switch {
	case a.reason == occurrence.NamespaceNotFound, a.reason == occurrence.NamespaceTerminating:
		n.standing.verdicts[r.api] = verdict{a.reason, a.err, s.sequence, now.Add(s.options.NamespaceRefusedFor)}
	case a.class == classOK && r.verb == verbCreate:
		n.standing.verdicts[r.api] = verdict{}
	}
	s.schedule.offer(n)
	s.wakeWorkers(now)
}

// retry gives up what the apiserver has not taken for too long, and lets the
// rest of a series wait. If the apiserver could not even be reached, all series
// wait together, and none is given up for that.
func (s *Sink) retry(owed *series, last answer) {
	s.metrics.retries.WithLabelValues(string(last.class)).Inc()
	if last.class == classUnreachable {
		return
	}
	s.mu.Lock()
	now := time.Now()
	owed.failures++
	owed.retryAt = now.Add(min(max(last.after, s.backoff(owed.failures)), s.options.RetryFor))
	tooOld := owed.dues.before(now.Add(-s.options.RetryFor))
	out := owed.account.giveUp(tooOld, occurrence.RetriesExhausted, last.err)
	s.release(owed)
	s.mu.Unlock()
	s.tell(out)
}

// ask makes one request, within the limits.
func (s *Sink) ask(ctx context.Context, r *request) answer {
	if err := s.limiter.Wait(ctx); err != nil {
		return answer{class: classNotTaken, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	s.metrics.inFlight.Inc()
	defer s.metrics.inFlight.Dec()
	start := time.Now()
	var a answer
	if r.verb == verbCreate {
		object, err := s.client.Create(ctx, r.api, r.event)
		a = classify(r.verb, object, err)
	} else {
		object, err := s.client.Patch(ctx, r.api, r.namespace, r.name, r.patch)
		a = classify(r.verb, object, err)
	}
	a.began = start
	s.metrics.answered(r.verb, a, time.Since(start).Seconds())
	if a.class != classOK {
		s.metrics.failed.WithLabelValues(string(a.class)).Inc()
		klog.FromContext(ctx).V(4).Info("Event not written", "verb", r.verb, "event", klog.KRef(r.namespace, r.name),
			"class", a.class, "reason", a.reason, "err", a.err)
	}
	return a
}

// backoff is the wait after a number of failures in a row.
func (s *Sink) backoff(failures int) time.Duration {
	d := s.options.RetryMaxDelay
	if shift := failures - 1; shift < 30 {
		d = min(d, s.options.RetryBaseDelay<<max(0, shift))
	}
	return d/2 + rand.N(d/2+1)
}

// apply takes an answer. It returns what has settled, and whether to wait before
// the next request. A refusal that may change is not believed about what fell due
// after the given time.
func (owed *series) apply(r *request, a answer, disbelieved time.Time) (out []settled, retry bool) {
	account := owed.account
	switch a.class {
	case classOK:
		if r.verb != verbRead {
			owed.failures = 0
			return account.succeeded(r.plan, a.object), false
		}
		out, ok := account.read(a.object)
		if !ok {
			out = account.giveUp(account.last(), occurrence.NameOccupied, a.err)
			account.suffix = 0
		}
		return out, false
	case classExists:
		account.stale()
		return nil, false
	case classNotFound:
		return account.gone(a.err), false
	case classRefused:
		if a.mayChange && owed.dues.first().After(disbelieved) {
			return nil, true
		}
		if a.reason == occurrence.Invalid && r.verb != verbRead && account.undress() {
			return nil, false
		}
		upTo := r.plan.upTo
		if r.verb == verbRead {
			upTo = account.last()
		}
		return account.giveUp(upTo, a.reason, a.err), false
	case classLost:
		if r.verb != verbRead {
			account.lost(r.plan)
		}
	}
	return nil, true
}
