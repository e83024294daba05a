package otlp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/receivertest"
)

// BenchmarkSend encodes and sends batches of 512 over loopback. CPU is that of the process, with
// that of the server, which decodes what comes by gRPC and discards what comes by HTTP.
func BenchmarkSend(b *testing.B) {
	address := serveGRPC(b, func(context.Context, *request) (*response, error) { return &response{}, nil })
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for _, protocol := range []configv1alpha1.OTLPProtocol{configv1alpha1.OTLPGRPC, configv1alpha1.OTLPHTTP} {
		for _, compression := range []string{"gzip", "none"} {
			b.Run(string(protocol)+"/"+compression, func(b *testing.B) {
				endpoint := address
				if protocol == configv1alpha1.OTLPHTTP {
					endpoint = server.URL
				}
				r := newReceiverWith(b, &configv1alpha1.OTLP{
					Protocol: protocol, Endpoint: endpoint, Compression: compression, Connection: configv1alpha1.Connection{Insecure: true},
				}, time.Minute)
				batch := receivertest.Records(512)
				receivertest.MeasureSend(b, r, batch)
			})
		}
	}
}
