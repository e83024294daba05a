package replication

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/eventd/eventd/internal/grace"
)

// run runs the two halves of a session until one of them returns or the context ends. Then it
// closes the session, and waits for the halves and for Close for a grace period each: a call that
// never returns only keeps its goroutine.
func run(ctx context.Context, session io.Closer, halves ...func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var running sync.WaitGroup
	for _, half := range halves {
		running.Go(func() {
			err := errHalfEnded // also if the session ends the goroutine
			defer func() { end(err) }()
			err = half(ctx)
		})
	}
	<-ctx.Done()
	grace.Run(func() { session.Close() })
	grace.Run(running.Wait)
	return context.Cause(ctx)
}

var errHalfEnded = errors.New("a goroutine of the session has ended")
