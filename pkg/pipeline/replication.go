package pipeline

import (
	"context"
	"errors"
	"io"

	"github.com/eventd/eventd/pkg/sink"
)

// errNotStarted: StartSink was not called.
var errNotStarted = errors.New("the pipeline has no sink")

// startedSink returns the sink, nil until StartSink.
func (p *Pipeline) startedSink() *sink.Sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writer == nil {
		return nil
	}
	return p.writer.sink
}

// Serve is Serve of the sink: it replicates what is pending to the follower at the other end of a
// session.
func (p *Pipeline) Serve(ctx context.Context, follower io.ReadWriteCloser) error {
	if s := p.startedSink(); s != nil {
		return s.Serve(ctx, follower)
	}
	return errors.Join(errNotStarted, follower.Close())
}

// SetLeading is SetLeading of the sink. It has no effect before StartSink.
func (p *Pipeline) SetLeading(leading bool) {
	if s := p.startedSink(); s != nil {
		s.SetLeading(leading)
	}
}

// AwaitFollower is AwaitFollower of the sink. What is still queued for the sink is not included.
// Without a sink it returns nil.
func (p *Pipeline) AwaitFollower(ctx context.Context) error {
	if s := p.startedSink(); s != nil {
		return s.AwaitFollower(ctx)
	}
	return nil
}
