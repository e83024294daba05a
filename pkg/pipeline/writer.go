package pipeline

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/sink"
)

// writer is one sink, with its own subscriber, correlator and ledger.
type writer struct {
	ledger      *ledger.Ledger
	sink        *sink.Sink // nil if it is remote
	outlet      outlet     // the sink
	subscriber  *broadcaster.Subscriber
	correlating *correlating
	metrics     *registrations
	client      sink.Client

	// server is the apiserver, "" if it is unknown; users is the number of targets
	// that have not stopped it. Both are guarded by the mutex of stages.
	server string
	users  int
	number int // within the broadcaster, from 1

	// drain is the context of the goroutine end.
	drain  context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	ending  bool
	waiting int              // calls of close that have time left
	done    chan watch.Event // closed when the sink has ended; never sent to
	left    sink.Pending     // set when done is closed
}

// outlet is what the writer needs of a sink.Sink or a remote.Sink.
type outlet interface {
	Flush(context.Context) sink.Pending
	Close(context.Context) sink.Pending
	Pending() sink.Pending
}

// startWriter starts a sink. On an error, it has stopped and unregistered everything.
func startWriter(ctx context.Context, l *ledger.Ledger, metrics *registrations, start func(*writer) error) (*writer, error) {
	w := &writer{ledger: l, metrics: metrics, done: make(chan watch.Event)}
	w.drain, w.cancel = context.WithCancelCause(ctx)
	if err := start(w); err != nil {
		metrics.unregisterAll()
		return nil, err
	}
	return w, nil
}

func (w *writer) start(ctx context.Context, b *broadcaster.Broadcaster, client sink.Client, o Options) (err error) {
	if err := o.validateQueue(); err != nil {
		return err
	}
	w.client = client
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	w.correlating = &correlating{ledger: w.ledger, trail: o.Trail, clock: o.Clock, logger: klog.FromContext(ctx)}
	if err = w.correlating.register(w.metrics); err != nil {
		return err
	}
	o.Correlator.Registerer, o.Sink.Registerer = w.metrics, w.metrics
	o.Sink.Trail = o.Trail
	c, err := correlator.New(o.Correlator)
	if err != nil {
		return err
	}
	if w.sink, err = sink.New(ctx, client, w.ledger, o.Sink); err != nil {
		return err
	}
	w.outlet, w.correlating.sink = w.sink, w.sink
	return w.subscribe(ctx, b, o, c)
}

func (o *Options) validateQueue() error {
	if o.QueueCapacity <= 0 {
		return fmt.Errorf("pipeline options: QueueCapacity must be greater than 0, not %d", o.QueueCapacity)
	}
	return nil
}

// subscribe starts to pass on what is published. On an error, it closes the sink.
func (w *writer) subscribe(ctx context.Context, b *broadcaster.Broadcaster, o Options, c decider) (err error) {
	w.subscriber, err = b.Subscribe(broadcaster.SubscribeOptions{
		Name:       "sink",
		Capacity:   o.QueueCapacity,
		WhenFull:   o.WhenFull,
		Ledger:     w.ledger,
		Registerer: w.metrics,
	})
	if err != nil {
		w.outlet.Close(ctx) // nothing is pending
		return err
	}
	w.correlating.subscriber = w.subscriber
	w.correlating.start(c)
	return nil
}

// close writes what is pending until the context ends, and returns what was not written.
// The subscription must have ended. With several calls, writing ends with the last context;
// a call whose context ends earlier returns what is pending then. The last call returns
// within four grace periods after the end of its context.
func (w *writer) close(ctx context.Context) sink.Pending {
	w.mu.Lock()
	w.waiting++
	if !w.ending {
		w.ending = true
		go w.end()
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return w.left
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.waiting--
	last := w.waiting == 0
	w.mu.Unlock()
	if !last {
		return sink.Pending{Series: w.outlet.Pending().Series, Occurrences: w.ledger.Totals().Pending()}
	}
	w.cancel(context.Cause(ctx))
	<-w.done
	return w.left
}

// end is the goroutine that the first close starts, and waits for.
func (w *writer) end() {
	dropped := w.correlating.end(w.drain)
	w.left = w.outlet.Close(w.drain)
	w.left.Occurrences += dropped
	if c, ok := w.client.(*customSink); ok {
		c.release() // callers may reference the writer for longer
	}
	w.cancel(nil)
	close(w.done)
}
