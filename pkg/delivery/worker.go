package delivery

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

const (
	// The defaults of the configuration, in case that nobody has set them.
	defaultBatchSize = 512
	defaultTimeout   = 10 * time.Second
	// maxRequestBytes bounds the Events of an attempt, in memory. gRPC servers refuse messages of
	// more than 4 MiB by default. One Event may have more, and is sent alone.
	maxRequestBytes = 1 << 20
	// sendInterval is the minimum time between two requests to a receiver that is up to date. An
	// Event after a pause is sent at once, and a steady stream in a fraction of the requests.
	sendInterval = 10 * time.Millisecond
)

// worker delivers to one receiver with one configuration, from its start until its context ends.
// It holds one batch at a time. Its goroutine owns it.
type worker struct {
	config   v1alpha1.Receiver
	delivery *Delivery
	cursors  *cursors
	account  *account
	start    observer.Start
	reader   Reader // nil if it is paused and has a cursor
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned

	destination *destination
	epoch       int64             // of the history that the reader reads
	failures    int               // of attempts, since the last success
	unread      int               // failures to read, since the last success
	unsettled   []receiver.Record // of the batch, in order
	throttler   *throttler
	routing     *configuration // that the throttler follows; nil before the first batch
}

// run delivers until ctx ends. What is not settled by then is handed over.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "receiver", w.config.Name))
	w.epoch, w.throttler = w.start.Cursor.Epoch, newThrottler(MaxThrottleBytes)
	w.work(ctx)
	w.account.detach()
	w.account.setState(StateStandby)
}

func (w *worker) work(ctx context.Context) {
	var first observer.Batch
	if w.isNew() {
		var ok bool
		if first, ok = w.storeStart(ctx); !ok {
			return
		}
	}
	if w.config.Paused {
		w.account.detach()
		w.account.setState(StatePaused)
		<-ctx.Done()
		return
	}
	if !w.startDestination(ctx) {
		return
	}
	defer w.destination.end()
	if !w.open(ctx) || !w.handle(ctx, &first) {
		return
	}
	for {
		w.account.setState(StateWaiting)
		batch, ok := w.next(ctx)
		began := time.Now()
		if !ok || !w.handle(ctx, &batch) {
			return
		}
		if len(batch.Entries) < w.batchSize() && sleep.For(ctx, sendInterval-time.Since(began)) != nil {
			return
		}
	}
}

// isNew reports whether the receiver begins with what is stored from now on.
func (w *worker) isNew() bool { return !w.start.Oldest && w.start.Cursor.ResourceVersion == "" }

// storeStart stores where a new receiver begins, before anything is sent: after a crash it would
// begin later otherwise. The batch that it has read for that is returned.
func (w *worker) storeStart(ctx context.Context) (observer.Batch, bool) {
	for {
		batch, ok := w.read(ctx)
		if !ok || len(batch.Entries) > 0 {
			return batch, ok
		}
		if w.advance(batch.Cursor); batch.Cursor.ResourceVersion != "" {
			return batch, w.cursors.awaitWritten(ctx)
		}
	}
}

// read returns the next batch. It returns false when ctx has ended.
func (w *worker) read(ctx context.Context) (observer.Batch, bool) {
	for {
		batch, err := w.reader.Next(ctx, w.batchSize())
		if err == nil {
			w.unread = 0
			w.account.take(&batch)
			return batch, true
		}
		if ctx.Err() != nil {
			return observer.Batch{}, false
		}
		w.log(ctx, "read", err, "Could not read Events for a receiver")
		if !w.backOff(ctx, &w.unread, err) {
			return observer.Batch{}, false
		}
	}
}

// handle settles a batch. It returns false when ctx has ended.
func (w *worker) handle(ctx context.Context, batch *observer.Batch) bool {
	if batch.Gap && w.account.lines.Allow("gap") {
		klog.FromContext(ctx).Info("The apiserver has removed versions of Events that may not have been delivered", "quietFor", ratelimitedlog.Interval)
	}
	if batch.Restored && !w.restore(ctx) {
		return false
	}
	view := w.follow()
	if view == nil { // removed from the configuration
		<-ctx.Done()
		return false
	}
	if !w.sendSummaries(ctx) { // before later versions
		return false
	}
	o := w.route(view, batch.Entries)
	w.unsettled = o.records
	if !w.sendAll(ctx, o) {
		return false
	}
	w.advance(batch.Cursor)
	return true
}

// restore begins a new epoch. It is stored before anything is sent: the restored history may have
// passed the old cursor by the time of a crash, which would then seem to be a point of it.
func (w *worker) restore(ctx context.Context) bool {
	w.epoch++
	w.throttler.endAll() // its resource versions are of another history
	klog.FromContext(ctx).Info("etcd was restored from a backup: everything that is stored is delivered again", "epoch", w.epoch)
	w.cursors.advance(w.config.Name, observer.Cursor{Epoch: w.epoch})
	return w.cursors.awaitWritten(ctx)
}

// advance moves the cursor of the receiver.
func (w *worker) advance(to observer.Cursor) {
	if to.ResourceVersion == "" {
		return
	}
	w.epoch = max(w.epoch, to.Epoch)
	to.Epoch = w.epoch
	w.cursors.advance(w.config.Name, to)
}

// outgoing are records of a batch, with the cursor that is reached when a record, and all before it,
// are settled; or summaries, which have none.
type outgoing struct {
	records   []receiver.Record
	cursors   []observer.Cursor
	events    []*corev1.Event // of the records, before they were redacted; of a Trail only
	summaries bool
}

func (o outgoing) first(n int) outgoing {
	return outgoing{o.records[:n], o.cursors[:min(n, len(o.cursors))], o.events[:min(n, len(o.events))], o.summaries}
}

func (o outgoing) after(n int) outgoing {
	return outgoing{o.records[n:], o.cursors[min(n, len(o.cursors)):], o.events[min(n, len(o.events)):], o.summaries}
}

// fitting returns how many records fit into a request.
func (o outgoing) fitting() int {
	var bytes int64
	for i := range o.records {
		if bytes += eventsize.Of(o.records[i].Event); bytes > maxRequestBytes && i > 0 {
			return i
		}
	}
	return len(o.records)
}

// reached returns the cursor when all records are settled. It is zero if there is none.
func (o outgoing) reached() observer.Cursor {
	for _, c := range slices.Backward(o.cursors) {
		if c.ResourceVersion != "" {
			return c
		}
	}
	return observer.Cursor{}
}

// route settles what the receiver does not get, and returns the others.
func (w *worker) route(view View, entries []observer.Entry) outgoing {
	var o outgoing
	for i := range entries {
		e := &entries[i]
		switch ok, route := view.Deliver(e.Event); {
		case !ok:
			w.account.filter(route)
			w.traceNotDelivered(e.Event, route, NotRouted)
		case !w.throttles(view, route, e.Version):
			o.records = append(o.records, w.record(view, e.Version))
			o.cursors = append(o.cursors, e.Cursor)
			if w.delivery.options.Trail != nil {
				o.events = append(o.events, e.Event)
			}
			continue
		}
		switch last := len(o.cursors) - 1; {
		case e.Cursor.ResourceVersion == "":
		case last >= 0: // reached when the record before it is settled
			o.cursors[last] = e.Cursor
		default:
			w.advance(e.Cursor)
		}
	}
	return o
}

// settle counts the first unsettled records, and moves the cursor. Summaries have no part in that.
// err is why all of them are rejected, if they are.
func (w *worker) settle(o outgoing, rejected int, err error) {
	n := len(o.records)
	rejected = min(max(0, rejected), n)
	if o.summaries {
		w.account.settleSummaries(n-rejected, rejected, 0)
		return
	}
	w.unsettled = w.unsettled[n:]
	var next time.Time
	if len(w.unsettled) > 0 {
		next = w.unsettled[0].Observed
	}
	w.account.settle(n-rejected, rejected, next)
	w.trace(o, rejected, err)
	w.advance(o.reached())
	w.cursors.delivered(n - rejected)
}

// trace reports what has settled to the trail.
func (w *worker) trace(o outgoing, rejected int, err error) {
	for _, event := range o.events {
		if rejected == len(o.events) {
			w.delivery.options.Trail.NotDelivered(w.config.Name, event, "", Rejected, err)
		} else {
			w.delivery.options.Trail.Delivered(w.config.Name, event, rejected)
		}
	}
}

func (w *worker) traceNotDelivered(event *corev1.Event, route string, why NotDelivered) {
	if t := w.delivery.options.Trail; t != nil {
		t.NotDelivered(w.config.Name, event, route, why, nil)
	}
}

// log logs an error, rate-limited by reason.
func (w *worker) log(ctx context.Context, reason string, err error, message string) {
	if w.account.lines.Allow(reason) {
		klog.FromContext(ctx).Error(bounded(err), message, "quietFor", ratelimitedlog.Interval)
	}
}
