// Package pipeline records Kubernetes Events and writes them to an apiserver. It connects
// the stages of an occurrence: recorder, broadcaster, correlator, sink.
//
//   - RecordBroadcaster replaces the broadcaster of client-go's tools/record, and
//     EventsBroadcaster that of tools/events. In a controller, only the constructor
//     changes.
//   - Pipeline is for programs that build occurrences themselves, or write to a
//     sink.Client of their own.
//
// Recording never blocks, except with broadcaster.WaitWhenFull. What is recorded before a
// sink is started or after the shutdown is dropped and counted. A shutdown ends all
// goroutines, and settles every occurrence.
//
// docs/library.md of the repository describes what changes for a controller, the options
// and the rights. test/dropin has an example with controller-runtime, which is not a
// dependency of this module.
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

// Pipeline has one sink and no watchers. It is safe for use by many goroutines. Make it
// with New, and end it with Shutdown.
type Pipeline struct {
	ctx         context.Context // for its logger
	options     Options
	ledger      *ledger.Ledger
	broadcaster *broadcaster.Broadcaster
	repairs     *recorder.Repairs

	mu     sync.Mutex
	writer *writer // nil until StartSink or StartRemoteSink
}

// New returns a pipeline without a sink. Until StartSink or StartRemoteSink, what is recorded is
// dropped and counted. The logger is that of the context, whose end has no effect. An error is one of
// registering metrics.
func New(ctx context.Context, o Options) (*Pipeline, error) {
	l := newLedger(o.Trail)
	metrics := &registrations{underlying: o.Registerer}
	if err := metrics.Register(l); err != nil {
		return nil, err
	}
	repairs, err := recorder.NewRepairs(metrics)
	if err != nil {
		metrics.unregisterAll()
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

// StartSink starts to write what is recorded from now on with the client. A pipeline has one
// sink: it is an error if there is one. Any other error is one of the options or of registering
// metrics; then the pipeline has no sink.
func (p *Pipeline) StartSink(client sink.Client) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writer != nil {
		return errors.New("the pipeline already has a sink")
	}
	metrics := &registrations{underlying: p.options.Registerer}
	p.writer, err = startWriter(p.ctx, p.ledger, metrics, func(w *writer) error { return w.start(p.ctx, p.broadcaster, client, p.options) })
	return err
}

// Record records an occurrence that the caller built. It does not block, unless
// Options.WhenFull is broadcaster.WaitWhenFull. The occurrence must not be changed
// afterwards.
func (p *Pipeline) Record(o *occurrence.Occurrence) { recorder.Record(p.broadcaster, o) }

// Filter counts an occurrence as recorded, and settles it as occurrence.Filtered by a rule of the
// caller. It is not written, and reaches no queue. A weight of 0 makes the counter of the rule
// exist.
func (p *Pipeline) Filter(o *occurrence.Occurrence, rule occurrence.Reason) {
	p.ledger.Record(o)
	p.ledger.Settle(o, occurrence.Settlement{Outcome: occurrence.Filtered, Reason: rule})
}

// NewRecorder returns a recorder of classic Events, as client-go's tools/record does.
func (p *Pipeline) NewRecorder(scheme *runtime.Scheme, source corev1.EventSource) record.EventRecorderLogger {
	return recorder.New(p.broadcaster, scheme, source).WithRepairs(p.repairs)
}

// Totals returns the counts of recorded and settled occurrences.
func (p *Pipeline) Totals() ledger.Totals { return p.ledger.Totals() }

// Flush writes everything that is pending in the sink, without delays. It returns when that
// is written, or when the context ends; writing then continues. It does not wait for
// occurrences that reach the sink later.
func (p *Pipeline) Flush(ctx context.Context) {
	p.mu.Lock()
	w := p.writer
	p.mu.Unlock()
	if w != nil {
		w.outlet.Flush(ctx)
	}
}

// Shutdown stops recording, and writes what is pending until the context ends. What is not
// written by then is settled as dropped or uncertain, and reported by an
// *UndeliveredError. It returns within a second after the end of the context. All
// goroutines have ended then, except for calls of the client or of callbacks that do not
// return.
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
