package counters

import (
	"context"

	"github.com/eventd/eventd/internal/increase"
	"github.com/eventd/eventd/pkg/receiver"
)

// MaxKnown is the number of Events whose counts are remembered: 6 MiB. An Event that is forgotten
// counts 1 for its next version.
const MaxKnown = 32_768

// Receiver counts what it is sent. It knows the counts of Events, from its beginning on: a new term
// needs a new one, since other leaders have counted meanwhile.
type Receiver struct {
	counters *Counters
	known    *increase.Counts
}

var _ receiver.Receiver = (*Receiver)(nil)

// Receiver returns a receiver that knows no Event.
func (c *Counters) Receiver() *Receiver { return &Receiver{c, increase.New(MaxKnown)} }

// Send counts a batch. It has no error.
func (r *Receiver) Send(_ context.Context, batch []receiver.Record) (rejected int, err error) {
	for i := range batch {
		if n := r.known.Of(batch[i].Event); n > 0 {
			r.counters.count(batch[i].Event, n)
		}
	}
	return 0, nil
}

// Close does nothing.
func (r *Receiver) Close() error { return nil }
