package main

import (
	"context"
	"fmt"
	"math"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// queueCapacity holds a storm of 20,000 on a busy machine whose handler is not scheduled meanwhile.
const queueCapacity = 1 << 15

// unlimited are eventd's defaults without its limit of requests per second, which no other side has, and with room
// for a storm.
func unlimited() pipeline.Options {
	o := pipeline.DefaultOptions()
	o.QueueCapacity, o.Sink = queueCapacity, sink.DefaultOptions()
	o.Sink.QPS, o.Sink.MaxPendingSeries, o.Sink.MaxPendingBytes = math.Inf(1), 40_000, 192<<20
	return o
}

// running is a pipeline of eventd that writes through connections of its own, with
// a count of what passes through them.
type running struct {
	*pipeline.Pipeline
	traffic  *traffic
	recorder record.EventRecorder
}

// startEventd starts one. The caller stops it.
func startEventd(config *rest.Config, o pipeline.Options) (*running, error) {
	t := newTraffic()
	config = rest.CopyConfig(config)
	config.Wrap(t.through)
	client, err := sink.NewClientForConfig(config)
	if err != nil {
		return nil, err
	}
	p, err := startPipeline(client, o)
	if err != nil {
		return nil, err
	}
	return &running{Pipeline: p, traffic: t, recorder: p.NewRecorder(scheme.Scheme, source)}, nil
}

func startPipeline(client sink.Client, o pipeline.Options) (*pipeline.Pipeline, error) {
	p, err := pipeline.New(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return p, p.StartSink(client)
}

// stop drops what is not written yet.
func (r *running) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // the error is about what was dropped
}

// byEventd counts the written occurrences of its ledger.
func byEventd(ctx context.Context, config *rest.Config, l load) (effort, error) {
	r, err := startEventd(config, unlimited())
	if err != nil {
		return effort{}, err
	}
	defer r.stop()
	return exert(len(l.objects), func() (int, error) {
		if err := l.record(ctx, r.recorder); err != nil {
			return 0, err
		}
		if err := r.settle(ctx, len(l.objects)); err != nil {
			return 0, err
		}
		return int(r.Totals().Written()), nil
	})
}

// settle waits until all of so many distinct occurrences are written or dropped.
func (r *running) settle(ctx context.Context, occurrences int) error {
	// An occurrence that finds the queue full is dropped while it is recorded.
	dropped := int(r.Totals().Outcomes[occurrence.Dropped])
	if err := r.traffic.waitCreated(ctx, occurrences-dropped); err != nil {
		return fmt.Errorf("%w; %+v", err, r.Totals())
	}
	// The last answer may not have reached the ledger yet.
	return r.Shutdown(ctx)
}
