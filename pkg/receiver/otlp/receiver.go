package otlp

import (
	"cmp"
	"context"
	"fmt"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/pkg/receiver/internal/sequence"
)

var _ receiver.Receiver = (*Receiver)(nil)

// Receiver is a receiver.Receiver. Its methods are for one goroutine at a time. Make it with New;
// Close closes its connection.
type Receiver struct {
	sender    *sequence.Sender
	transport transport
}

// transport sends a request, and returns the destination's answer or a *receiver.Error.
type transport interface {
	export(ctx context.Context, request *collogspb.ExportLogsServiceRequest) (*collogspb.ExportLogsServiceResponse, error)
	close() error
}

// New returns a receiver, which connects with the first Send. A request of a Send is limited to
// timeout, or to 10 s if that is 0. Errors are about the configuration, or about a file in it that
// can't be read, and name the field.
func New(config *configv1alpha1.OTLP, timeout time.Duration) (*Receiver, error) {
	compress := true
	switch config.Compression {
	case "", "gzip":
	case "none":
		compress = false
	default:
		return nil, fmt.Errorf("compression: %q is neither gzip nor none", config.Compression)
	}
	t, err := newTransport(config, cmp.Or(timeout, connection.DefaultTimeout), compress)
	if err != nil {
		return nil, err
	}
	return &Receiver{sender: sequence.New(), transport: t}, nil
}

func newTransport(config *configv1alpha1.OTLP, timeout time.Duration, compress bool) (transport, error) {
	switch config.Protocol {
	case "", configv1alpha1.OTLPGRPC:
		return newGRPCTransport(config, timeout, compress)
	case configv1alpha1.OTLPHTTP:
		return newHTTPTransport(config, timeout, compress)
	default:
		return nil, fmt.Errorf("protocol: %q is neither grpc nor http", config.Protocol)
	}
}

// Send implements receiver.Receiver.
func (r *Receiver) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	return r.sender.Send(ctx, batch, r.request)
}

func (r *Receiver) request(ctx context.Context, records []receiver.Record) (sequence.Outcome, error) {
	request := newRequest(records)
	outcome := sequence.Outcome{Records: len(request.ResourceLogs)}
	response, err := r.transport.export(ctx, request)
	if err != nil {
		return outcome, err
	}
	partial := response.GetPartialSuccess()
	outcome.Rejected = int(min(max(partial.GetRejectedLogRecords(), 0), int64(outcome.Records)))
	outcome.Reason = connection.Quote(partial.GetErrorMessage())
	return outcome, nil
}

// Close implements receiver.Receiver.
func (r *Receiver) Close() error { return r.transport.close() }
