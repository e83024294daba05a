package cloudevents

import (
	"context"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/pkg/receiver/internal/sequence"
)

// maxBatchBytes limits a request with several Events: nginx refuses more than 1 MiB unless it is
// configured otherwise, and a refusal for the size is one for good.
const maxBatchBytes = 1 << 20

var _ receiver.Receiver = (*Receiver)(nil)

// Receiver is a receiver.Receiver. Its methods are for one goroutine at a time. Make it with New;
// Close closes its connection.
type Receiver struct {
	client  *connection.Client
	sender  *sequence.Sender
	batched bool
}

// New returns a receiver, which connects with the first Send. A request of a Send is limited to
// timeout, or to 10 s if that is 0. Errors are about the configuration, or about a file in it that
// can't be read.
func New(config *configv1alpha1.CloudEvents, timeout time.Duration) (*Receiver, error) {
	client, err := connection.NewClient(config.URL, &config.Connection, timeout)
	if err != nil {
		return nil, err
	}
	return &Receiver{client: client, sender: sequence.New(), batched: config.Batched}, nil
}

// Send implements receiver.Receiver.
func (r *Receiver) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	if r.batched {
		return r.sender.Send(ctx, batch, r.sendSeveral)
	}
	return r.sender.Send(ctx, batch, r.sendOne)
}

func (r *Receiver) sendOne(ctx context.Context, records []receiver.Record) (sequence.Outcome, error) {
	outcome := sequence.Outcome{Records: 1}
	body, err := encode(records[0])
	if err != nil {
		return outcome, err
	}
	return outcome, r.post(ctx, body, event.ApplicationCloudEventsJSON)
}

func (r *Receiver) sendSeveral(ctx context.Context, records []receiver.Record) (sequence.Outcome, error) {
	body, n, err := encodeBatch(records)
	outcome := sequence.Outcome{Records: n}
	if err != nil {
		return outcome, err
	}
	return outcome, r.post(ctx, body, event.ApplicationCloudEventsBatchJSON)
}

func (r *Receiver) post(ctx context.Context, body []byte, contentType string) error {
	response, err := r.client.Post(ctx, body, contentType, "")
	if err != nil {
		return err
	}
	return response.Err()
}

// Close implements receiver.Receiver.
func (r *Receiver) Close() error {
	r.client.Close()
	return nil
}
