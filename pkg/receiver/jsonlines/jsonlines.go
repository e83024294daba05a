// Package jsonlines writes versions of Events to stdout or to a file, one JSON object per line.
//
// What is acknowledged was written and, in a file, synced to disk. A write cannot be cancelled, so
// it runs in a goroutine of its own, and at most one per destination and process: a destination
// that blocks holds up only its own receiver.
package jsonlines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/eventd/eventd/internal/eventjson"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

const (
	// maxChunk is about what one write has. A receiver holds this and one line more, which the
	// size of an object in etcd limits to about 10 MiB, in control characters.
	maxChunk = 1 << 20
	// closeTimeout is how long Close waits for a write that does not return.
	closeTimeout = time.Second
)

// turns has, for each destination, a channel that holds a value while somebody writes there. It is
// shared by all receivers of the process: the configuration may be reloaded while a write blocks.
var turns sync.Map // of chan struct{}, by absolute path, "" for stdout

func turnOf(destination string) chan struct{} {
	turn, _ := turns.LoadOrStore(destination, make(chan struct{}, 1))
	return turn.(chan struct{})
}

// output is a destination. It is used by one goroutine at a time.
type output interface {
	// prepare is called before the writes of a batch.
	prepare() error
	// write adds whole lines. After an error, no later line is joined to a part of these.
	write(lines []byte) error
	// commit returns when what was written is durable.
	commit() error
	close() error
}

// Receiver writes to one destination. Make it with New. As with every receiver.Receiver, one
// goroutine at a time uses it. Close ends it.
type Receiver struct {
	name  string // in errors
	turn  chan struct{}
	chunk int

	// These are owned by whoever holds turn.

	out    output
	lines  bytes.Buffer
	encode *json.Encoder
	// delivered are the records of the last batch that were written although its Send failed, or
	// had returned. So a destination makes progress that is too slow for a batch within a timeout.
	delivered map[string]struct{}
}

// New returns a receiver for a configuration. A file is opened by the first Send, so that a directory that is
// missing is an error of Send.
func New(config v1alpha1.JSONLines) (*Receiver, error) {
	if config.Path == "" {
		stdout, err := duplicateStdout()
		if err != nil {
			return nil, fmt.Errorf("stdout: %w", err)
		}
		return newReceiver("stdout", turnOf(""), &stream{w: stdout}, maxChunk), nil
	}
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, err
	}
	return newReceiver(path, turnOf(path), &file{path: path, open: openFile}, maxChunk), nil
}

func newReceiver(name string, turn chan struct{}, out output, chunk int) *Receiver {
	r := &Receiver{name: name, turn: turn, out: out, chunk: chunk}
	r.encode = eventjson.NewEncoder(&r.lines)
	return r
}

// Send writes a batch in its order. It implements receiver.Receiver: it rejects no record, and
// every error means that the batch is sent again. It returns when ctx ends, even if the write does
// not; then the next Send waits for it first.
func (r *Receiver) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: an earlier write has not returned: %w", r.name, context.Cause(ctx))
	}
	result := make(chan error, 1)
	go func() {
		err := r.writeBatch(ctx, batch)
		<-r.turn
		result <- err
	}()
	select {
	case err := <-result:
		return 0, err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // both were ready
		return 0, err
	default:
		return 0, fmt.Errorf("%s: the write has not returned: %w", r.name, context.Cause(ctx))
	}
}

// Close closes the destination. If a write does not return within a second, it closes it after the
// write, and returns an error.
func (r *Receiver) Close() error {
	closed := make(chan error, 1)
	go func() {
		r.turn <- struct{}{}
		err := r.out.close()
		<-r.turn
		closed <- err
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return fmt.Errorf("%s: a write has not returned, it is closed after it", r.name)
	}
}

// writeBatch writes what of a batch is not delivered yet, and remembers what it wrote if that is
// not all, or nobody waits for it any more.
func (r *Receiver) writeBatch(ctx context.Context, batch []receiver.Record) error {
	if err := r.out.prepare(); err != nil {
		return err
	}
	written, err := r.writeLines(ctx, batch)
	if failed := r.out.commit(); failed != nil {
		return errors.Join(err, failed)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		r.delivered = nil
		return nil
	}
	delivered := make(map[string]struct{}, len(written))
	for _, record := range batch {
		if _, ok := r.delivered[record.ID]; ok {
			delivered[record.ID] = struct{}{}
		}
	}
	for _, id := range written {
		delivered[id] = struct{}{}
	}
	r.delivered = delivered
	return err
}

// writeLines writes lines until one cannot be written, or ctx ends. It returns the IDs of those
// that it wrote.
func (r *Receiver) writeLines(ctx context.Context, batch []receiver.Record) (written []string, err error) {
	r.lines.Reset()
	defer r.shrink()
	var inChunk []string
	flush := func() error {
		if err := r.out.write(r.lines.Bytes()); err != nil {
			return err
		}
		r.lines.Reset()
		written = append(written, inChunk...)
		inChunk = inChunk[:0]
		return context.Cause(ctx)
	}
	for i := range batch {
		if _, ok := r.delivered[batch[i].ID]; ok {
			continue
		}
		if err := r.encode.Encode(lineOf(&batch[i])); err != nil {
			return written, &receiver.Error{Permanent: true, Err: fmt.Errorf("encode %s: %w", batch[i].ID, err)}
		}
		inChunk = append(inChunk, batch[i].ID)
		if r.lines.Len() >= r.chunk {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	return written, flush()
}

// shrink releases a buffer that a large line has grown.
func (r *Receiver) shrink() {
	if r.lines.Cap() > 2*maxChunk {
		r.lines = bytes.Buffer{}
	}
}
