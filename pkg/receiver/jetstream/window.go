package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/receiver"
)

const (
	// maxInFlight and maxBytesInFlight limit what is published and not acknowledged. The client
	// holds the messages until then. One message may be larger: an object in etcd has at most
	// about 10 MiB as JSON.
	maxInFlight      = 256
	maxBytesInFlight = 4 << 20

	// exceedsMaximum is the error code of a message that is larger than max_msg_size of the stream
	// (nats-server, server/errors.json, JSStreamMessageExceedsMaximumErr).
	exceedsMaximum natsjs.ErrorCode = 10054
)

// window publishes a batch. It has one version of an Event in flight: a stream may refuse a version
// and accept the next, and then would get the first after it.
//
// It is not safe for concurrent use.
type window struct {
	conn    *connection
	subject string

	inFlight []publication // oldest first
	uids     map[types.UID]struct{}
	bytes    int

	acknowledged map[string]struct{} // of the batch, in all attempts

	rejected   int
	rejectedID string // an example
	reason     error
}

// publication is a message in flight.
type publication struct {
	id    string
	uid   types.UID
	bytes int
	ack   natsjs.PubAckFuture
}

// newWindow returns a window for a batch, some records of which may be acknowledged.
func newWindow(conn *connection, subject string, acknowledged map[string]struct{}, batch []receiver.Record) *window {
	w := &window{
		conn: conn, subject: subject,
		uids: make(map[types.UID]struct{}), acknowledged: make(map[string]struct{}),
	}
	for i := range batch {
		if _, ok := acknowledged[batch[i].ID]; ok {
			w.acknowledged[batch[i].ID] = struct{}{}
		}
	}
	return w
}

// has reports whether the stream has a record.
func (w *window) has(id string) bool {
	_, ok := w.acknowledged[id]
	return ok
}

// publish publishes a message when the window has a place for it, but not after the Lease is lost:
// the place may come late.
func (w *window) publish(ctx context.Context, record *receiver.Record, m *nats.Msg) error {
	p := publication{id: record.ID, uid: record.Event.UID, bytes: len(m.Data)}
	for w.full(p) {
		if err := w.settleOldest(ctx); err != nil {
			return err
		}
	}
	if election.IsLost(ctx) {
		return election.ErrLeaseLost
	}
	var err error
	// The client would repeat a message for which there was no stream, when later ones are under way.
	p.ack, err = w.conn.js.PublishMsgAsync(m, natsjs.WithRetryAttempts(0))
	switch {
	case errors.Is(err, nats.ErrMaxPayload): // it was not sent
		w.reject(p.id, err)
		return nil
	case err != nil:
		return fmt.Errorf("publish: %w", w.conn.explain(ctx, err))
	}
	w.inFlight = append(w.inFlight, p)
	w.uids[p.uid] = struct{}{}
	w.bytes += p.bytes
	return nil
}

func (w *window) full(next publication) bool {
	_, sameEvent := w.uids[next.uid]
	return sameEvent || len(w.inFlight) >= maxInFlight ||
		len(w.inFlight) > 0 && w.bytes+next.bytes > maxBytesInFlight
}

// drain waits for all that is in flight. It returns the first error, unless there was one before.
func (w *window) drain(ctx context.Context, failed bool) (err error) {
	for len(w.inFlight) > 0 {
		if e := w.settleOldest(ctx); e != nil && !failed {
			failed, err = true, e
		}
	}
	return err
}

func (w *window) settleOldest(ctx context.Context) error {
	p := w.inFlight[0]
	w.inFlight = w.inFlight[1:]
	w.bytes -= p.bytes
	delete(w.uids, p.uid)

	err := w.wait(ctx, p.ack)
	var refused *natsjs.APIError
	switch {
	case err == nil: // a duplicate is in the stream too
		w.acknowledged[p.id] = struct{}{}
	case errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum:
		w.reject(p.id, err)
	case errors.Is(err, natsjs.ErrNoStreamResponse):
		return fmt.Errorf("no stream has the subject %q, or JetStream is disabled: %w", w.subject, err)
	case err != nil:
		return err
	}
	return nil
}

func (w *window) reject(id string, reason error) {
	w.rejected++
	w.rejectedID, w.reason = id, reason
}

// wait returns when a message was acknowledged, or will not be.
func (w *window) wait(ctx context.Context, ack natsjs.PubAckFuture) error {
	select { // what was answered counts although the connection failed since
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	default:
	}
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	case <-w.conn.failed:
		return w.conn.explain(ctx, w.conn.failure())
	case <-ctx.Done():
		return fmt.Errorf("no acknowledgement; is it a stream that has the subject %q?: %w", w.subject, context.Cause(ctx))
	}
}
