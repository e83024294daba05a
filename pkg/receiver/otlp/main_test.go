package otlp_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // of the server
	"google.golang.org/protobuf/proto"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	request  = collogspb.ExportLogsServiceRequest
	response = collogspb.ExportLogsServiceResponse
)

// grpcServer answers with what handle returns.
type grpcServer struct {
	collogspb.UnimplementedLogsServiceServer
	handle func(context.Context, *request) (*response, error)
}

func (s *grpcServer) Export(ctx context.Context, r *request) (*response, error) {
	return s.handle(ctx, r)
}

// serveGRPC starts a server with the limits that a collector has, and returns its address.
func serveGRPC(t testing.TB, handle func(context.Context, *request) (*response, error), options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	collogspb.RegisterLogsServiceServer(server, &grpcServer{handle: handle})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// serveHTTP starts a server, and returns its URL.
func serveHTTP(t testing.TB, handle func(http.ResponseWriter, *request)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decoded, err := readRequest(r)
		if err != nil {
			t.Error(err)
		}
		handle(w, decoded)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1/logs"
}

func readRequest(r *http.Request) (*request, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			return nil, err
		}
	}
	plain, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	decoded := &request{}
	return decoded, proto.Unmarshal(plain, decoded)
}

func newReceiver(t testing.TB, protocol configv1alpha1.OTLPProtocol, endpoint string, timeout time.Duration) *otlp.Receiver {
	t.Helper()
	return newReceiverWith(t, &configv1alpha1.OTLP{
		Protocol: protocol, Endpoint: endpoint, Connection: configv1alpha1.Connection{Insecure: true},
	}, timeout)
}

func newReceiverWith(t testing.TB, config *configv1alpha1.OTLP, timeout time.Duration) *otlp.Receiver {
	t.Helper()
	r, err := otlp.New(config, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// sendAgain is what an error of Send says.
type sendAgain struct {
	permanent bool
	after     time.Duration
}

func meaning(err error) sendAgain {
	failed, ok := errors.AsType[*receiver.Error](err)
	if !ok {
		return sendAgain{}
	}
	return sendAgain{permanent: failed.Permanent, after: failed.RetryAfter}
}
