package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/pkg/receiver/internal/sequence"
)

// maxResponse limits a response in bytes. It is odd, and so no limit of a server: the error of a response
// above it has the code and the words of a request that is too large for the server, but for the limit.
const maxResponse = connection.MaxResponseBytes + 1

// grpcTransport has one connection.
type grpcTransport struct {
	target      string
	timeout     time.Duration
	credentials *connection.Credentials
	options     []grpc.DialOption

	tls  *tls.Config      // of conn
	conn *grpc.ClientConn // nil before the first request, and after one without an answer
}

func newGRPCTransport(config *configv1alpha1.OTLP, timeout time.Duration, compress bool) (*grpcTransport, error) {
	if err := checkAddress(config.Endpoint); err != nil {
		return nil, err
	}
	creds, err := connection.NewCredentials(&config.Connection)
	if err != nil {
		return nil, err
	}
	return &grpcTransport{
		target:      "dns:///" + config.Endpoint,
		timeout:     timeout,
		credentials: creds,
		options:     dialOptions(timeout, compress),
	}, nil
}

func checkAddress(endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || strings.Contains(host, "/") {
		return fmt.Errorf("endpoint: %q is not HOST:PORT", endpoint)
	}
	return nil
}

func dialOptions(timeout time.Duration, compress bool) []grpc.DialOption {
	// Connecting ends before a request does: only then the error says which step fails, and where.
	connect := min(10*time.Second, timeout*9/10)
	options := []grpc.DialOption{
		grpc.WithUserAgent(connection.UserAgent),
		grpc.WithDisableRetry(),         // the caller sends again
		grpc.WithDisableServiceConfig(), // from DNS
		grpc.WithMaxHeaderListSize(connection.MaxResponseBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		// A receiver that is back is noticed within 10 s.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: min(time.Second, connect), Multiplier: 1.6, Jitter: 0.2, MaxDelay: connect},
			MinConnectTimeout: connect,
		}),
		// Pings are sent during a call only: servers of grpc-go close a connection for more. On
		// Linux, a connection is also closed when what was sent is not acknowledged by TCP
		// within the timeout.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if compress {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	return options
}

func (t *grpcTransport) export(ctx context.Context, request *collogspb.ExportLogsServiceRequest) (*collogspb.ExportLogsServiceResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := t.renew(ctx); err != nil {
		return nil, err
	}
	for _, h := range t.credentials.Headers(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, h.Name, h.Value)
	}
	response, err := collogspb.NewLogsServiceClient(t.conn).Export(ctx, request)
	if err == nil {
		return response, nil
	}
	failed := errorOf(err)
	if status.Code(err) == codes.DeadlineExceeded {
		step := "waiting for the response"
		if t.conn.GetState() != connectivity.Ready {
			step = "looking up " + strings.TrimPrefix(t.target, "dns:///")
		}
		// A proxy may keep a connection alive whose other end is gone.
		failed.Err = errors.Join(fmt.Errorf("%s: %w", step, failed.Err), t.close())
	}
	return nil, failed
}

// renew makes another connection if the TLS files have changed.
func (t *grpcTransport) renew(ctx context.Context) error {
	config := t.credentials.TLS(ctx)
	if t.conn != nil && t.tls == config {
		return nil
	}
	if err := t.close(); err != nil {
		return err
	}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(t.target, append([]grpc.DialOption{grpc.WithTransportCredentials(creds)}, t.options...)...)
	if err != nil {
		return err
	}
	t.conn, t.tls = conn, config
	return nil
}

func (t *grpcTransport) close() error {
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn = nil
	return conn.Close()
}

// errorOf returns what the error of a call means to the sender of a batch.
func errorOf(err error) *receiver.Error {
	s := status.Convert(err)
	failed := &receiver.Error{Err: fmt.Errorf("%s: %s", s.Code(), connection.Quote(s.Message()))}
	info, temporary := retryInfo(s)
	switch {
	case s.Code() == codes.InvalidArgument:
		failed.Permanent = true
	case temporary:
		failed.RetryAfter = connection.ClampRetryAfter(info.GetRetryDelay().AsDuration())
	case strings.HasSuffix(strings.TrimSuffix(s.Message(), ")"), " "+strconv.Itoa(maxResponse)):
	case connection.SaysTooLarge(s.Message()): // by any code: a proxy has its own, and so has the server in Rust
		failed.Permanent = true
	case s.Code() == codes.ResourceExhausted:
		failed.Err = fmt.Errorf("%w: %w", sequence.ErrMaybeTooLarge, failed.Err)
	}
	return failed
}

func retryInfo(s *status.Status) (*errdetails.RetryInfo, bool) {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info, true
		}
	}
	return nil, false
}
