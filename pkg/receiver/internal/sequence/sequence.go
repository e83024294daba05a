// Package sequence sends a batch as several requests, one after another.
package sequence

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/receiver"
)

// Outcome is what became of a request.
type Outcome struct {
	// Records is how many of the records the request had, from the first on. It is at least 1, also
	// if the request failed.
	Records int
	// Rejected is how many of them the destination has rejected for good, and Reason its own words
	// about that.
	Rejected int
	Reason   string
}

// ErrMaybeTooLarge is in the error of a request that was refused for its size, or for now: the destination
// does not say which.
var ErrMaybeTooLarge = errors.New("too large, or too much for now")

// maxRefusals is how often a record alone is refused so until it is given up. With the backoff of the
// delivery, that takes more than half a minute.
const maxRefusals = 10

// minRefused is the size in bytes of the smallest Event that is given up so. No server of OTLP or HTTP has so small
// a limit unless it was set: what is smaller is refused for now.
const minRefused = 16 << 10

// Request sends a request with the first of the records, and as many of those that follow as it
// can have.
type Request func(ctx context.Context, records []receiver.Record) (Outcome, error)

// Sender sends batches by requests. Make it with New. It is for one goroutine at a time.
//
// When a request fails, it remembers which records were acknowledged before that. When the batch
// is sent again, they are left out. A former leader has no such memory, and a batch that begins
// with other records is sent whole: what is acknowledged is repeated rather than lost.
type Sender struct {
	acknowledged []string // the IDs at the beginning of the last batch
	rejected     int      // of them
	// refused is the ID of the record that was refused last with ErrMaybeTooLarge alone in its request,
	// and refusals how often that was.
	refused  string
	refusals int

	rejections *ratelimitedlog.Limiter
}

// New returns a sender that has sent nothing.
func New() *Sender {
	return &Sender{rejections: ratelimitedlog.New(ratelimitedlog.Interval)}
}

// Send is Send of a receiver.Receiver. It stops at the first request that fails, and sends none after
// the Lease is lost: a batch may take longer than what was left of it. A request that is
// refused for good is sent again with half of its records, until only the record that is refused is
// rejected; so one Event has no others rejected. If the whole batch was one request, the error is
// returned, and the caller does so. An error with ErrMaybeTooLarge is a refusal for good, unless the
// record is alone, and is smaller than minRefused or was refused less than maxRefusals times.
func (s *Sender) Send(ctx context.Context, batch []receiver.Record, request Request) (rejected int, err error) {
	resumed, rejected := s.resume(batch)
	sent, limit := resumed, len(batch)
	if sent < len(batch) && batch[sent].ID == s.refused {
		limit = 1
	}
	for sent < len(batch) {
		outcome, err := Outcome{}, election.ErrLeaseLost
		if !election.IsLost(ctx) {
			outcome, err = request(ctx, batch[sent:min(sent+limit, len(batch))])
		}
		if errors.Is(err, ErrMaybeTooLarge) && (outcome.Records > 1 || s.refuses(&batch[sent])) {
			err = &receiver.Error{Permanent: true, Err: err}
		}
		if refusal, ok := errors.AsType[*receiver.Error](err); ok && refusal.Permanent && outcome.Records < len(batch) {
			if outcome.Records > 1 {
				limit = outcome.Records / 2
				continue
			}
			outcome.Rejected, outcome.Reason, err = 1, refusal.Err.Error(), nil
		}
		if err != nil {
			s.remember(batch[:sent], rejected)
			if sent > resumed {
				err = receiver.Progressed(err)
			}
			return 0, err
		}
		if outcome.Rejected > 0 && s.rejections.Allow("") {
			klog.FromContext(ctx).Info("Destination rejected Events", "events", outcome.Rejected, "reason", outcome.Reason)
		}
		sent += outcome.Records
		rejected += outcome.Rejected
		limit = min(2*limit, len(batch))
	}
	s.remember(nil, 0)
	return rejected, nil
}

// refuses counts a refusal of a record alone, and reports whether it is the last one.
func (s *Sender) refuses(r *receiver.Record) bool {
	if s.refused != r.ID {
		s.refused, s.refusals = r.ID, 0
	}
	s.refusals++
	return s.refusals >= maxRefusals && r.Event.Size() >= minRefused
}

// resume returns how many records at the beginning of the batch are acknowledged.
func (s *Sender) resume(batch []receiver.Record) (sent, rejected int) {
	if len(batch) < len(s.acknowledged) {
		return 0, 0
	}
	for i, id := range s.acknowledged {
		if batch[i].ID != id {
			return 0, 0
		}
	}
	return len(s.acknowledged), s.rejected
}

func (s *Sender) remember(acknowledged []receiver.Record, rejected int) {
	s.acknowledged, s.rejected = nil, rejected
	for _, r := range acknowledged {
		s.acknowledged = append(s.acknowledged, r.ID)
	}
}
