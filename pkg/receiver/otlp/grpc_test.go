package otlp_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/receivertest"
)

func TestDelayOfRetryInfoIsBounded(t *testing.T) {
	var code codes.Code
	var retryInfo *errdetails.RetryInfo
	address := serveGRPC(t, func(context.Context, *request) (*response, error) {
		s := status.New(code, "why")
		if retryInfo != nil {
			var err error
			if s, err = s.WithDetails(retryInfo); err != nil {
				return nil, err
			}
		}
		return nil, s.Err()
	})
	r := newReceiver(t, "", address, 0)
	check := func(want sendAgain) {
		t.Helper()
		rejected, err := r.Send(t.Context(), receivertest.Records(2))
		if rejected != 0 || err == nil || meaning(err) != want {
			t.Errorf("%s: %d rejected, %v, %+v; want %+v", code, rejected, err, meaning(err), want)
		}
	}
	code = codes.ResourceExhausted
	for _, test := range []struct {
		delay *durationpb.Duration
		want  time.Duration
	}{
		{nil, 0},
		{durationpb.New(7 * time.Second), 7 * time.Second},
		{durationpb.New(-7 * time.Second), 0},
		{&durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}, time.Hour},
	} {
		retryInfo = &errdetails.RetryInfo{RetryDelay: test.delay}
		check(sendAgain{after: test.want})
	}
	code = codes.InvalidArgument
	check(sendAgain{permanent: true})
}

func TestRejectedRecordsAreCountedWithinTheBatch(t *testing.T) {
	var rejects int64
	address := serveGRPC(t, func(context.Context, *request) (*response, error) {
		return &response{PartialSuccess: &collogspb.ExportLogsPartialSuccess{RejectedLogRecords: rejects, ErrorMessage: "too old"}}, nil
	})
	r := newReceiver(t, configv1alpha1.OTLPGRPC, address, 0)
	for claimed, want := range map[int64]int{0: 0, 1: 1, 3: 3, 4: 3, math.MaxInt64: 3, -1: 0, math.MinInt64: 0} {
		rejects = claimed
		if rejected, err := r.Send(t.Context(), receivertest.Records(3)); rejected != want || err != nil {
			t.Errorf("%d: %d rejected, %v; want %d", claimed, rejected, err, want)
		}
	}
}

func TestGRPCServerThatNeverAnswersCostsTheTimeoutAndTheConnection(t *testing.T) {
	var answers atomic.Bool
	end := make(chan struct{})
	peers := make(chan string, 1000)
	address := serveGRPC(t, func(ctx context.Context, _ *request) (*response, error) {
		p, _ := peer.FromContext(ctx)
		peers <- p.Addr.String()
		if !answers.Load() {
			<-end
		}
		return &response{}, nil
	})
	defer close(end)
	r := newReceiver(t, "", address, 100*time.Millisecond)
	await.Until(t, "a request arrives", func() bool { // a busy machine may take longer to connect
		_, err := r.Send(t.Context(), receivertest.Records(1))
		if meaning(err) != (sendAgain{}) || err == nil {
			t.Fatalf("the error is %v", err)
		}
		return len(peers) > 0
	})
	hung := <-peers
	answers.Store(true)
	await.Until(t, "a request is answered", func() bool { // a busy machine may need several
		_, err := r.Send(t.Context(), receivertest.Records(1))
		return err == nil
	})
	if next := <-peers; next == hung {
		t.Error("the same connection is used again")
	}
}

func TestGRPCTimeoutNamesItsStep(t *testing.T) {
	receivertest.HangLookups(t)
	silent, unanswered := receivertest.Silent(t), receivertest.Unanswered(t)
	end := make(chan struct{})
	hanging := serveGRPC(t, func(context.Context, *request) (*response, error) {
		<-end
		return &response{}, nil
	})
	t.Cleanup(func() { close(end) }) // before the server stops
	for name, test := range map[string]struct {
		address string
		secure  bool
		want    string
	}{
		"lookup":   {"collector.example:4317", true, "looking up collector.example:4317"},
		"dial":     {unanswered, true, "dial tcp " + unanswered},
		"TLS":      {silent, true, "handshake"},
		"HTTP/2":   {silent, false, "preface"},
		"response": {hanging, false, "waiting for the response"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &configv1alpha1.OTLP{Endpoint: test.address, Connection: configv1alpha1.Connection{Insecure: !test.secure}}
			r := newReceiverWith(t, config, 100*time.Millisecond)
			await.Until(t, test.want, func() bool { // a busy machine may time out before
				_, err := r.Send(t.Context(), receivertest.Records(1))
				if err == nil || meaning(err) != (sendAgain{}) {
					t.Fatalf("the error is %v", err)
				}
				return strings.Contains(err.Error(), test.want)
			})
		})
	}
}

func TestGRPCServerThatIsAwayIsRetried(t *testing.T) {
	r := newReceiver(t, "", "127.0.0.1:1", 0)
	if _, err := r.Send(t.Context(), receivertest.Records(1)); err == nil || meaning(err) != (sendAgain{}) {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Send(ctx, receivertest.Records(1)); err == nil || meaning(err) != (sendAgain{}) {
		t.Errorf("the error is %v", err)
	}
}

func TestGRPCResponseIsLimited(t *testing.T) {
	address := serveGRPC(t, func(context.Context, *request) (*response, error) {
		return &response{PartialSuccess: &collogspb.ExportLogsPartialSuccess{ErrorMessage: string(make([]byte, 1<<20))}}, nil
	})
	r := newReceiver(t, "", address, 0)
	if _, err := r.Send(t.Context(), receivertest.Records(1)); err == nil || meaning(err) != (sendAgain{}) {
		t.Errorf("the error is %v", err)
	}
}

func TestGRPCUsesRotatedCertificatesAndHeaders(t *testing.T) {
	servers, clients := receivertest.NewCA(t, "servers"), receivertest.NewCA(t, "clients")
	var token, client string
	address := serveGRPC(t, func(ctx context.Context, _ *request) (*response, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		token = md.Get("authorization")[0]
		p, _ := peer.FromContext(ctx)
		client = p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName
		return &response{}, nil
	}, grpc.Creds(credentials.NewTLS(servers.ServerTLS(t, clients))))

	dir := t.TempDir()
	rotate := func(name string, ca, issuer *receivertest.CA) {
		cert, key := issuer.Issue(t, name)
		receivertest.WriteFile(t, dir, "token", []byte(name))
		receivertest.WriteFile(t, dir, "ca.crt", ca.PEM)
		receivertest.WriteFile(t, dir, "tls.crt", cert)
		receivertest.WriteFile(t, dir, "tls.key", key)
	}
	rotate("first", servers, clients)
	r := newReceiverWith(t, &configv1alpha1.OTLP{Endpoint: address, Connection: configv1alpha1.Connection{
		TLS:             &configv1alpha1.TLS{CAFile: dir + "/ca.crt", CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key"},
		BearerTokenFile: dir + "/token",
	}}, 0)
	for _, name := range []string{"first", "second"} {
		rotate(name, servers, clients)
		if _, err := r.Send(t.Context(), receivertest.Records(1)); err != nil || token != "Bearer "+name || client != name {
			t.Errorf("%v; the token is %q, the client %q; want %q", err, token, client, name)
		}
	}
	rotate("stranger", servers, servers)
	if _, err := r.Send(t.Context(), receivertest.Records(1)); err == nil {
		t.Error("a certificate of another CA is accepted")
	}
	rotate("first", clients, clients)
	if _, err := r.Send(t.Context(), receivertest.Records(1)); err == nil || meaning(err).permanent {
		t.Errorf("with another CA for the server the error is %v", err)
	}
}
