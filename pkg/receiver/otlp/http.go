package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"mime"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
)

const (
	contentType = "application/x-protobuf"
	// minCompressed is the size of a request from which on it is compressed: one record takes less
	// than half of the processor time without.
	minCompressed = 4 << 10
)

type httpTransport struct {
	client *connection.Client
	gzip   *gzip.Writer // nil without compression; small requests have none
}

func newHTTPTransport(config *configv1alpha1.OTLP, timeout time.Duration, compress bool) (*httpTransport, error) {
	client, err := connection.NewClient(config.Endpoint, &config.Connection, timeout)
	if err != nil {
		return nil, err
	}
	t := &httpTransport{client: client}
	if compress {
		t.gzip = gzip.NewWriter(nil)
	}
	return t, nil
}

func (t *httpTransport) export(ctx context.Context, request *collogspb.ExportLogsServiceRequest) (*collogspb.ExportLogsServiceResponse, error) {
	body, encoding, err := t.encode(request)
	if err != nil {
		return nil, &receiver.Error{Permanent: true, Err: err}
	}
	response, err := t.client.Post(ctx, body, contentType, encoding)
	if err != nil {
		return nil, err
	}
	if err := response.Err(); err != nil {
		return nil, err
	}
	return decode(response)
}

// encode returns a body of its own: see connection.Client.Post.
func (t *httpTransport) encode(request *collogspb.ExportLogsServiceRequest) (body []byte, encoding string, err error) {
	plain, err := proto.Marshal(request)
	if err != nil || t.gzip == nil || len(plain) < minCompressed {
		return plain, "", err
	}
	var compressed bytes.Buffer
	t.gzip.Reset(&compressed)
	if _, err := t.gzip.Write(plain); err != nil {
		return nil, "", err
	}
	if err := t.gzip.Close(); err != nil {
		return nil, "", err
	}
	return compressed.Bytes(), "gzip", nil
}

// decode returns the answer to a request that was accepted. Many destinations answer with an
// empty body, or one that is not OTLP: these have rejected nothing. A page is no answer of a
// destination, but that of a login in front of it.
func decode(r *connection.Response) (*collogspb.ExportLogsServiceResponse, error) {
	if r.BodyErr != nil {
		return nil, fmt.Errorf("status %d, but the response is not whole: %w", r.Status, r.BodyErr)
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media == "text/html" && len(r.Body) > 0 {
		return nil, errors.New("the response is a page, so this is no receiver of OTLP")
	}
	response := &collogspb.ExportLogsServiceResponse{}
	if media != contentType || proto.Unmarshal(r.Body, response) != nil {
		return &collogspb.ExportLogsServiceResponse{}, nil
	}
	return response, nil
}

func (t *httpTransport) close() error {
	t.client.Close()
	return nil
}
