// Package pipeline assembles the stations that an occurrence passes: recorder,
// broadcaster, correlator, sink.
//
// Recording is possible at any time and never waits. What is recorded before
// StartSink or after Shutdown is counted as dropped. Shutdown ends all
// goroutines and accounts for everything that was recorded.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/internal/ledger"
	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/recorder"
	"github.com/eventd/eventd/pkg/sink"
)

// Options of a pipeline and its stations.
type Options struct {
	// QueueCapacity is how many occurrences may wait for the correlator.
	QueueCapacity int
	Correlator    correlator.Options
	Sink          sink.Options
	// Registerer takes the metrics of all stations; nil leaves them
	// unregistered. It takes the place of those in the stations' options.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults of all stations.
func DefaultOptions() Options {
	return Options{
		QueueCapacity: broadcaster.DefaultCapacity,
		Correlator:    correlator.DefaultOptions(),
		Sink:          sink.DefaultOptions(),
	}
}

// Pipeline is safe for use by many goroutines. Make it with New.
type Pipeline struct {
	ctx         context.Context // for its logger
	options     Options
	ledger      *ledger.Ledger
	broadcaster *broadcaster.Broadcaster

	mu          sync.Mutex
	sink        *sink.Sink // nil until StartSink
	correlating sync.WaitGroup
}

// New returns a pipeline that drops, and counts, what is recorded until a sink
// is started. The context carries the logger; ending it stops nothing. An error
// is one of registering metrics.
func New(ctx context.Context, o Options) (*Pipeline, error) {
	l := ledger.New()
	if o.Registerer != nil {
		if err := o.Registerer.Register(l); err != nil {
			return nil, err
		}
	}
	o.Correlator.Registerer, o.Sink.Registerer = o.Registerer, o.Registerer
	return &Pipeline{
		ctx:         context.WithoutCancel(ctx),
		options:     o,
		ledger:      l,
		broadcaster: broadcaster.New(l),
	}, nil
}

// StartSink begins to write what is recorded through the client. It can be
// called once; an error is one of the options or of registering metrics, and
// leaves the pipeline without a sink.
func (p *Pipeline) StartSink(client sink.Client) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sink != nil {
		return errors.New("the pipeline has a sink already")
	}
	c, err := correlator.New(p.options.Correlator)
	if err != nil {
		return err
	}
	s, err := sink.New(p.ctx, client, p.ledger, p.options.Sink)
	if err != nil {
		return err
	}
	subscriber, err := p.broadcaster.Subscribe(broadcaster.SubscribeOptions{
		Name:       "sink",
		Capacity:   p.options.QueueCapacity,
		Ledger:     p.ledger,
		Registerer: p.options.Registerer,
	})
	if err != nil {
		s.Close(p.ctx) // it owes nothing
		return err
	}
	p.sink = s
	p.correlating.Go(func() { correlate(subscriber, c, s) })
	return nil
}

// correlate is the goroutine that owns the correlator.
func correlate(from *broadcaster.Subscriber, c *correlator.Correlator, to *sink.Sink) {
	for {
		o, ok := from.Receive()
		if !ok {
			return
		}
		to.Add(o, c.Correlate(o, time.Now()).Target)
	}
}

// Record takes an occurrence from a source of the process. It never waits.
func (p *Pipeline) Record(o *occurrence.Occurrence) { recorder.Record(p.broadcaster, o) }

// NewRecorder returns a recorder as client-go's broadcaster does.
func (p *Pipeline) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return recorder.New(p.broadcaster, scheme, source)
}

// Totals reads the ledger.
func (p *Pipeline) Totals() ledger.Totals { return p.ledger.Totals() }

// Shutdown takes nothing new and writes what was recorded until the context
// ends. What it could not write by then is settled as dropped or uncertain and
// reported in the error. All goroutines have ended when it returns.
func (p *Pipeline) Shutdown(ctx context.Context) error {
	p.broadcaster.Shutdown()
	p.mu.Lock()
	s := p.sink
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	p.correlating.Wait() // does no I/O, so this takes no longer than the queue is long
	if left := s.Close(ctx); left.Series > 0 {
		return fmt.Errorf("%d occurrences of %d series were not written: %w", left.Occurrences, left.Series, context.Cause(ctx))
	}
	return nil
}
