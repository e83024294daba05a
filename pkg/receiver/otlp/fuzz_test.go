package otlp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/test/receivertest"
)

// checkAnswer fails if what Send returns is not within the limits of its contract.
func checkAnswer(t *testing.T, sent, rejected int, err error) {
	t.Helper()
	if rejected < 0 || rejected > sent || err != nil && rejected != 0 {
		t.Errorf("%d of %d rejected, %v", rejected, sent, err)
	}
	if m := meaning(err); m.after < 0 || m.after > connection.MaxRetryAfter || m.permanent && m.after != 0 {
		t.Errorf("%+v", m)
	}
}

func FuzzHTTPResponse(f *testing.F) {
	f.Add(200, protobuf, "", []byte("\x0a\x02\x08\x05"))
	f.Add(200, protobuf, "", []byte("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(429, "text/plain", "7", []byte("busy"))
	f.Add(503, "", "Mon, 23 Nov 2026 07:00:30 GMT", []byte(nil))
	var answer func(w http.ResponseWriter)
	url := serveHTTP(f, func(w http.ResponseWriter, _ *request) { answer(w) })
	r := newReceiver(f, configv1alpha1.OTLPHTTP, url, 0)
	records := receivertest.Records(3)
	f.Fuzz(func(t *testing.T, code int, contentType, retryAfter string, body []byte) {
		if code < 200 || code > 999 {
			return
		}
		answer = func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Retry-After", retryAfter)
			w.WriteHeader(code)
			_, _ = w.Write(body)
		}
		rejected, err := r.Send(t.Context(), records)
		checkAnswer(t, len(records), rejected, err)
		if (err == nil) && code/100 != 2 {
			t.Errorf("%d is a success", code)
		}
	})
}

func FuzzGRPCStatus(f *testing.F) {
	const retryInfo = "type.googleapis.com/google.rpc.RetryInfo"
	for _, delay := range []time.Duration{time.Second, -time.Second, 1 << 62} {
		detail, err := proto.Marshal(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint32(codes.ResourceExhausted), "busy", retryInfo, detail)
	}
	f.Add(uint32(codes.Unavailable), "away", "", []byte("\xff"))
	var answer error
	address := serveGRPC(f, func(context.Context, *request) (*response, error) { return nil, answer })
	r := newReceiver(f, configv1alpha1.OTLPGRPC, address, 0)
	records := receivertest.Records(3)
	f.Fuzz(func(t *testing.T, code uint32, message, kind string, detail []byte) {
		if code == uint32(codes.OK) {
			return
		}
		answer = status.ErrorProto(&statuspb.Status{
			Code: int32(code), Message: message, Details: []*anypb.Any{{TypeUrl: kind, Value: detail}},
		})
		if answer == nil {
			return
		}
		rejected, err := r.Send(t.Context(), records)
		checkAnswer(t, len(records), rejected, err)
		if err == nil {
			t.Errorf("%d is a success", code)
		}
	})
}
