package faultproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// exchange is one Event write on its way through the proxy. It belongs to the
// goroutine of its request.
type exchange struct {
	proxy   *Proxy
	period  *period
	w       http.ResponseWriter
	r       *http.Request
	request Request
	onward  *http.Request // to the backend
	entry   *entry
	placed  bool // it has one of the proxy's places
	once    sync.Once
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
		panic(http.ErrAbortHandler) // a part of a request is no request
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
	switch err := x.proxy.places.take(x.r.Context()); {
	case errors.Is(err, errNoPlace):
		x.entry.set(func(e *Entry) { e.Fault = OverCapacity })
		x.proxy.places.refusal().end(x)
		return
	case err != nil:
		x.giveUp()
	}
	x.placed = true
	d := x.proxy.decide(x.request)
	x.entry.set(func(e *Entry) { e.Number, e.Fault = d.number, d.Fault.String() })
	x.strike(d)
}

// strike does what was decided. Its order is that of time.
func (x *exchange) strike(d decision) {
	x.wait(d.before)
	ending := d.ending
	switch {
	case d.effect == effectLate:
		x.forwardLate(d.lateBy)
	case d.effect == effectNow && ending == nil:
		ending = x.forward(x.r.Context())
	case d.effect == effectNow:
		x.forward(x.proxy.ctx) // the client cannot take it back
	}
	x.wait(d.after)
	ending.end(x)
}

// wait waits, and ends the exchange if its client does not.
func (x *exchange) wait(d time.Duration) {
	if !wait(x.r.Context(), d) {
		x.giveUp()
	}
}

// giveUp ends the exchange of a client that is gone.
func (x *exchange) giveUp() {
	x.finish(0)
	panic(http.ErrAbortHandler)
}

// forward hands the write to the backend.
func (x *exchange) forward(ctx context.Context) reply {
	x.entry.set(func(e *Entry) { e.Forwarded = true })
	answer := x.proxy.backend.ask(ctx, x.onward)
	x.entry.set(func(e *Entry) { e.Status, e.Err = answer.code, answer.err })
	return answer
}

// forwardLate hands the write to the backend after a while, unless the period
// ends before.
func (x *exchange) forwardLate(by time.Duration) {
	x.entry.addPart()
	x.period.work.Go(func() {
		defer x.entry.endPart()
		if wait(x.period.ctx, by) {
			x.forward(x.proxy.ctx)
		}
	})
}

// finish gives the place back and ends the request's part of the entry, with the
// code that the client is about to be sent. It comes before the ending is sent,
// so that a client that has its answer finds the place free and the entry
// complete. Only the first call counts.
func (x *exchange) finish(code int) {
	x.once.Do(func() {
		if x.placed {
			x.proxy.places.free()
		}
		x.entry.set(func(e *Entry) { e.Answer = code })
		x.entry.endPart()
	})
}
