package otlp_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/otlp"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/receivertest"
)

const protobuf = "application/x-protobuf"

func TestHTTPAnswers(t *testing.T) {
	partial, err := proto.Marshal(&response{PartialSuccess: &collogspb.ExportLogsPartialSuccess{RejectedLogRecords: 2}})
	if err != nil {
		t.Fatal(err)
	}
	type header = map[string]string
	for name, test := range map[string]struct {
		status   int
		header   header
		body     string
		rejected int
		failed   bool
		want     sendAgain
	}{
		"accepted":                        {status: 200, header: header{"Content-Type": protobuf}},
		"accepted without a body":         {status: 204},
		"accepted with another body":      {status: 200, header: header{"Content-Type": "text/plain"}, body: "ok"},
		"accepted with a broken body":     {status: 200, header: header{"Content-Type": protobuf}, body: "\xff\xff"},
		"accepted in part":                {status: 200, header: header{"Content-Type": protobuf}, body: string(partial), rejected: 2},
		"accepted with half an answer":    {status: 200, header: header{"Content-Type": protobuf, "Content-Length": "100"}, body: string(partial), failed: true},
		"accepted with an endless answer": {status: 200, header: header{"Content-Type": protobuf}, body: strings.Repeat("a", 1<<20), failed: true},
		"a login":                         {status: 200, header: header{"Content-Type": "text/html; charset=utf-8"}, body: "<html>", failed: true},
		"refused":                         {status: 400, failed: true, want: sendAgain{permanent: true}},
		"too large":                       {status: 413, failed: true, want: sendAgain{permanent: true}},
		"overloaded":                      {status: 429, header: header{"Retry-After": "2"}, failed: true, want: sendAgain{after: 2e9}},
		"away":                            {status: 503, failed: true},
		"another path":                    {status: 404, failed: true},
		"a redirect":                      {status: 307, header: header{"Location": "/"}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			url := serveHTTP(t, func(w http.ResponseWriter, _ *request) {
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			r := newReceiver(t, configv1alpha1.OTLPHTTP, url, 0)
			rejected, err := r.Send(t.Context(), receivertest.Records(3))
			if rejected != test.rejected || (err != nil) != test.failed || meaning(err) != test.want {
				t.Errorf("%d rejected, %v; want %d, failed %v, %+v", rejected, err, test.rejected, test.failed, test.want)
			}
		})
	}
}

func TestConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for _, config := range []configv1alpha1.OTLP{
		{Endpoint: "collector"}, {Endpoint: "http://collector:4317"}, {Endpoint: ":4317"}, {Endpoint: "collector:otlp"}, {Endpoint: "unix:///a:1"},
		{Endpoint: "collector:4317", Protocol: "udp"}, {Endpoint: "collector:4317", Compression: "zstd"},
		{Endpoint: "collector:4317", Protocol: configv1alpha1.OTLPHTTP},
		{Endpoint: "collector:4317", Connection: configv1alpha1.Connection{BearerTokenFile: "/none"}},
	} {
		if _, err := otlp.New(&config, 0); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func TestBodyBelongsToTheTransport(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		var r *otlp.Receiver
		receivertest.TestBodiesOfEarlyAnswers(t, func(url string, message byte) {
			if r == nil {
				r = newReceiverWith(t, &configv1alpha1.OTLP{
					Protocol: configv1alpha1.OTLPHTTP, Endpoint: url, Compression: compression, Connection: configv1alpha1.Connection{Insecure: true},
				}, 0)
			}
			batch := receivertest.Records(3)
			for i := range batch {
				batch[i].Event.Message = strings.Repeat(string(message), 900<<10)
			}
			if _, err := r.Send(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyLargeRequestsAreCompressed(t *testing.T) {
	var encodings []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		encodings = append(encodings, r.Header.Get("Content-Encoding"))
	}))
	t.Cleanup(server.Close)
	for _, compression := range []string{"gzip", "none"} {
		r := newReceiverWith(t, &configv1alpha1.OTLP{
			Protocol: configv1alpha1.OTLPHTTP, Endpoint: server.URL + "/v1/logs", Compression: compression, Connection: configv1alpha1.Connection{Insecure: true},
		}, await.Timeout)
		for _, n := range []int{1, 100} {
			if _, err := r.Send(t.Context(), receivertest.Records(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"", "gzip", "", ""}; !slices.Equal(encodings, want) {
		t.Errorf("the encodings are %q, want %q", encodings, want)
	}
}
