// Package pipeline assembles the stations that an occurrence passes: recorder,
// broadcaster, correlator, sink.
//
// There are three assemblies. RecordBroadcaster takes the place of the
// broadcaster of client-go's tools/record, EventsBroadcaster of that of
// tools/events: a controller changes the constructor and nothing else. Pipeline
// is for programs that make occurrences themselves.
//
// Recording is possible at any time and never waits, unless
// broadcaster.WaitWhenFull is asked for. What is recorded before a sink was
// started or after the shutdown is counted as dropped. A shutdown ends all
// goroutines and accounts for everything that was recorded.
package pipeline

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/recorder"
	"github.com/eventd/eventd/pkg/sink"
)

// Pipeline has one sink and no watchers. It is safe for use by many goroutines.
// Make it with New.
type Pipeline struct {
	ctx         context.Context // for its logger
	options     Options
	ledger      *ledger.Ledger
	broadcaster *broadcaster.Broadcaster
	repairs     *recorder.Repairs

	mu     sync.Mutex
	writer *writer // nil until StartSink
}

// New returns a pipeline that drops, and counts, what is recorded until a sink
// is started. The context carries the logger; ending it stops nothing. An error
// is one of registering metrics.
func New(ctx context.Context, o Options) (*Pipeline, error) {
	l := ledger.New()
	metrics := &registrations{underlying: o.Registerer}
	if err := metrics.Register(l); err != nil {
		return nil, err
	}
	repairs, err := recorder.NewRepairs(metrics)
	if err != nil {
		metrics.takeBack()
		return nil, err
	}
	return &Pipeline{
		ctx:         context.WithoutCancel(ctx),
		options:     o,
		ledger:      l,
		broadcaster: broadcaster.New(l),
		repairs:     repairs,
	}, nil
}

// StartSink begins to write what is recorded through the client. It can be
// called once; an error is one of the options or of registering metrics, and
// leaves the pipeline without a sink.
func (p *Pipeline) StartSink(client sink.Client) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writer != nil {
		return errors.New("the pipeline has a sink already")
	}
	metrics := &registrations{underlying: p.options.Registerer}
	p.writer, err = startWriter(p.ctx, p.broadcaster, p.ledger, client, p.options, metrics)
	return err
}

// Record takes an occurrence from a source of the process. It never waits.
func (p *Pipeline) Record(o *occurrence.Occurrence) { recorder.Record(p.broadcaster, o) }

// NewRecorder returns a recorder as client-go's broadcaster does.
func (p *Pipeline) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return recorder.New(p.broadcaster, scheme, source).WithRepairs(p.repairs)
}

// Totals reads the ledger.
func (p *Pipeline) Totals() ledger.Totals { return p.ledger.Totals() }

// Flush has everything written that is owed, whether or not it is due, and returns
// when that is done, or when the context ends; it goes on being written then.
// Meanwhile no write is deferred. Nothing is waited for that is recorded while it
// runs, or has not reached the sink when it begins.
func (p *Pipeline) Flush(ctx context.Context) {
	p.mu.Lock()
	w := p.writer
	p.mu.Unlock()
	if w != nil {
		w.sink.Flush(ctx)
	}
}

// Shutdown takes nothing new and writes what was recorded until the context
// ends. What it could not write by then is settled as dropped or uncertain and
// reported as an *UndeliveredError. All goroutines have ended when it returns.
func (p *Pipeline) Shutdown(ctx context.Context) error {
	p.broadcaster.Shutdown()
	p.mu.Lock()
	w := p.writer
	p.mu.Unlock()
	if w == nil {
		return nil
	}
	if left := w.close(ctx); left.Occurrences > 0 || left.Series > 0 {
		return &UndeliveredError{Occurrences: left.Occurrences, Series: left.Series, Cause: context.Cause(ctx)}
	}
	return nil
}
