package delivery

import (
	"context"
	"reflect"
	"time"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

// next returns the next batch. While it waits for one, it sends the summaries that are due. It
// returns false when ctx has ended.
func (w *worker) next(ctx context.Context) (observer.Batch, bool) {
	if w.throttler.next().IsZero() {
		return w.read(ctx)
	}
	// Not cancelled for a summary: it could begin the same page of a list again and again.
	read := make(chan *observer.Batch, 1)
	go func() {
		defer close(read)
		if batch, ok := w.read(ctx); ok {
			read <- &batch
		}
	}()
	for {
		ended, stop := timerAt(w.throttler.next())
		select {
		case batch := <-read:
			stop()
			if batch == nil {
				return observer.Batch{}, false
			}
			return *batch, true
		case <-ended:
			if !w.sendSummaries(ctx) {
				<-read
				return observer.Batch{}, false
			}
			w.account.setState(StateWaiting)
		}
	}
}

// timerAt returns what is ready at a time, and never without one.
func timerAt(t time.Time) (ready <-chan time.Time, stop func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(max(time.Until(t), time.Nanosecond)) // the race detector dislikes 0, as in sleep
	return timer.C, func() { timer.Stop() }
}

// follow returns the routing in force, or nil if the receiver is no longer configured. If the routes
// have changed, all groups end, and summaries that no route delivers any more are lost.
func (w *worker) follow() View {
	c := w.delivery.configuration.Load()
	view := c.view(w.config.Name)
	if view == nil || c == w.routing {
		return view
	}
	if w.routing != nil && !reflect.DeepEqual(w.routing.routes, c.routes) {
		w.throttler.endAll()
		kept := w.throttler.due[:0]
		for _, s := range w.throttler.due {
			if ok, _ := view.Deliver(s.latest.Event); ok {
				kept = append(kept, s)
			}
		}
		w.account.settleSummaries(0, 0, len(w.throttler.due)-len(kept))
		w.throttler.due = kept
	}
	w.routing = c
	return view
}

// sendSummaries sends the summaries that are due. It returns false when ctx has ended.
func (w *worker) sendSummaries(ctx context.Context) bool {
	if next := w.throttler.next(); next.IsZero() || time.Now().Before(next) {
		return true
	}
	view := w.follow()
	if view == nil { // removed from the configuration
		<-ctx.Done()
		return false
	}
	o := outgoing{summaries: true}
	for _, s := range w.throttler.take(time.Now()) {
		record := w.record(view, s.latest)
		record.Summarized = s.n
		o.records = append(o.records, record)
	}
	return w.sendAll(ctx, o)
}

// sendAll sends records in requests of limited size. It returns false when ctx has ended.
func (w *worker) sendAll(ctx context.Context, o outgoing) bool {
	for len(o.records) > 0 {
		n := min(o.fitting(), w.batchSize())
		if !w.send(ctx, o.first(n)) {
			return false
		}
		o = o.after(n)
	}
	return true
}

func (w *worker) batchSize() int {
	if n := w.config.BatchSize; n != nil && *n > 0 {
		return int(*n)
	}
	return defaultBatchSize
}

// record returns what the receiver gets of a version.
func (w *worker) record(view View, v observer.Version) receiver.Record {
	return receiver.Record{
		ID: v.ID(), Cluster: w.delivery.options.Cluster, Event: view.Redact(v.Event), Observed: v.Observed,
	}
}

// throttles reports whether a route leaves a version to a summary, which settles it.
func (w *worker) throttles(view View, route string, v observer.Version) bool {
	by := view.Throttle(route)
	if by == nil {
		return false
	}
	throttled, first := w.throttler.throttle(route, by, v, time.Now())
	if throttled {
		w.account.throttle(route, first)
		w.traceNotDelivered(v.Event, route, Throttled)
	}
	return throttled
}
