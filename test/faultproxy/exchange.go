package faultproxy

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// exchange is one Event write on its way through the proxy. It belongs to the
// goroutine of its request.
type exchange struct {
	proxy    *Proxy
	period   *period
	w        http.ResponseWriter
	r        *http.Request
	request  Request
	onward   *http.Request // to the backend
	entry    *entry
	acquired bool // it has a slot of the limiter
	once     sync.Once
}

// serve is the proxy's handler.
func (p *Proxy) serve(current *period, w http.ResponseWriter, r *http.Request) {
	request, isWrite := writeTarget(r)
	if !isWrite {
		p.backend.pass.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the request is incomplete
	}
	request.read(body)
	x := &exchange{
		proxy: p, period: current, w: w, r: r, request: request,
		onward: p.backend.prepare(r, body), entry: p.journal.begin(request),
	}
	defer x.finish(0)
	x.run()
}

func (x *exchange) run() {
	if x.acquired = x.proxy.limiter.acquire(); !x.acquired {
		x.entry.set(func(e *Entry) { e.Fault = OverCapacity })
		refusal.end(x)
		return
	}
	d := x.proxy.decide(x.request)
	x.entry.set(func(e *Entry) { e.Number, e.Fault = d.number, d.Fault.String() })
	x.strike(d)
}

// strike applies the decision.
func (x *exchange) strike(d decision) {
	x.wait(d.before)
	ending := d.ending
	switch {
	case d.effect == effectLate:
		x.forwardLate(d.lateBy)
	case d.effect == effectNow && ending == nil:
		ending = x.forward(x.r.Context())
	case d.effect == effectNow:
		x.forward(x.proxy.ctx) // the client cannot cancel it
	}
	x.wait(d.after)
	ending.end(x)
}

// wait waits, and ends the exchange if its client cancels.
func (x *exchange) wait(d time.Duration) {
	if !wait(x.r.Context(), d) {
		x.giveUp()
	}
}

// giveUp ends the exchange of a client that has cancelled.
func (x *exchange) giveUp() {
	x.finish(0)
	panic(http.ErrAbortHandler)
}

// forward sends the write to the backend.
func (x *exchange) forward(ctx context.Context) reply {
	x.entry.set(func(e *Entry) { e.Forwarded = true })
	answer := x.proxy.backend.send(ctx, x.onward)
	x.entry.set(func(e *Entry) { e.Status, e.Err = answer.code, answer.err })
	return answer
}

// forwardLate sends the write to the backend later, unless the period ends before.
func (x *exchange) forwardLate(by time.Duration) {
	x.entry.addPart()
	x.period.work.Go(func() {
		defer x.entry.endPart()
		if wait(x.period.ctx, by) {
			x.forward(x.proxy.ctx)
		}
	})
}

// finish releases the slot and ends the request's part of the entry, with the code for
// the client. It comes before the answer is sent, so that a client with an answer
// finds the slot free and the entry complete. Only the first call has an effect.
func (x *exchange) finish(code int) {
	x.once.Do(func() {
		if x.acquired {
			x.proxy.limiter.release()
		}
		x.entry.set(func(e *Entry) { e.Answer = code })
		x.entry.endPart()
	})
}
