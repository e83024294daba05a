package pipeline

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/remote"
)

// StartRecordingToEventd is StartRecordingToSink for an eventd, such as that of the cluster, which
// correlates and writes what is recorded. This process sends it batches, limits what is pending by
// Options.Remote, and settles as occurrence.Acknowledged what eventd has accepted. It needs the
// rights to create and patch events.
//
// A second sink for the same address joins the first.
func (b *RecordBroadcaster) StartRecordingToEventd(config *rest.Config) watch.Interface {
	to, err := eventdTarget(config)
	if err != nil {
		return b.failed(err)
	}
	return b.orFailed(b.stages.write(to))
}

// StartRecordingToEventd is StartRecordingToSinkWithContext for an eventd, in place of the
// broadcaster's own sink, which may be nil. See RecordBroadcaster.StartRecordingToEventd.
func (b *EventsBroadcaster) StartRecordingToEventd(ctx context.Context, config *rest.Config) error {
	to, err := eventdTarget(config)
	if err != nil {
		return err
	}
	return b.startRecording(ctx, to)
}

// StartRemoteSink is StartSink for an eventd, with the same errors, and in place of it. See
// RecordBroadcaster.StartRecordingToEventd.
func (p *Pipeline) StartRemoteSink(client remote.Client) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writer != nil {
		return errors.New("the pipeline already has a sink")
	}
	metrics := &registrations{underlying: p.options.Registerer}
	p.writer, err = startWriter(p.ctx, p.ledger, metrics, func(w *writer) error { return w.startRemote(p.ctx, p.broadcaster, client, p.options) })
	return err
}

func eventdTarget(config *rest.Config) (target, error) {
	client, err := remote.NewClientForConfig(config)
	return target{remote: client, server: "eventd at " + config.Host}, err
}

// startRemote is start for an eventd.
func (w *writer) startRemote(ctx context.Context, b *broadcaster.Broadcaster, client remote.Client, o Options) error {
	if err := o.validateQueue(); err != nil {
		return err
	}
	o.Remote.Registerer = w.metrics
	s, err := remote.New(ctx, client, w.ledger, o.Remote)
	if err != nil {
		return err
	}
	w.outlet = s
	w.correlating = &correlating{ledger: w.ledger, clock: clock.RealClock{}, logger: klog.FromContext(ctx), sink: remoteSink{s}}
	return w.subscribe(ctx, b, o, undecided{})
}

// undecided is the decider of a remote sink: eventd decides.
type undecided struct{}

// Correlate implements decider.
func (undecided) Correlate(*occurrence.Occurrence, time.Time) (d correlator.Decision) { return d }

// remoteSink is a remote.Sink as an adder, without the decision.
type remoteSink struct{ *remote.Sink }

// Add implements adder.
func (s remoteSink) Add(o *occurrence.Occurrence, _ occurrence.Target, _ time.Duration) {
	s.Sink.Add(o)
}
