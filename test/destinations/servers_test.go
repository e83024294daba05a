package destinations_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	collogspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// refusedMessage is that of an Event that a server does not take.
const refusedMessage = "refused"

// apiKey is the value of ELASTICSEARCH_API_KEY.
const apiKey = "a2V5"

// server is an HTTP server that accepts what a product documents of its endpoint for OTLP, and
// answers as that does.
type server struct {
	path, authorization string
	status              int               // of a success
	attributes          map[string]string // that the collector adds to each resource

	mu      sync.Mutex
	records []written
	unready int // requests that are answered 503
}

func startLoki(t *testing.T, address string) destination {
	return startServer(t, address, &server{
		path: "/otlp/v1/logs", status: http.StatusNoContent, attributes: map[string]string{"service.name": "kubernetes-events"},
	})
}

func startElasticsearch(t *testing.T, address string) destination {
	return startServer(t, address, &server{
		path: "/_otlp/v1/logs", authorization: "ApiKey " + apiKey, status: http.StatusOK,
		attributes: map[string]string{"data_stream.dataset": "kubernetes.events"},
	})
}

// startServer serves on an address until the end of the test.
func startServer(t *testing.T, address string, s *server) *server {
	t.Helper()
	s.unready = 2
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	serving := &http.Server{Handler: s}
	var served sync.WaitGroup
	served.Go(func() { _ = serving.Serve(listener) })
	t.Cleanup(func() {
		_ = serving.Close()
		served.Wait()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost || r.URL.Path != s.path || r.Header.Get("Content-Type") != "application/x-protobuf":
		http.Error(w, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header), http.StatusNotFound)
		return
	case r.Header.Get("Authorization") != s.authorization:
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	request := &collogspb.ExportLogsServiceRequest{}
	body, err := readAll(r)
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(s.store(allOf(request.ResourceLogs)))
}

// store returns the status of the answer. An empty body is an ExportLogsServiceResponse.
func (s *server) store(records []written) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unready > 0 {
		s.unready--
		return http.StatusServiceUnavailable
	}
	for _, record := range records {
		if record.Body == refusedMessage {
			return http.StatusBadRequest
		}
	}
	s.records = append(s.records, records...)
	return s.status
}

// readAll reads the body of a request.
func readAll(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

func (s *server) stored(*testing.T) []written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

func (s *server) want(w *written) {
	for key, value := range s.attributes {
		w.Resource[key] = value
	}
}

// eventd gives up what is refused for good, so the collector must not say that it can be sent again.
func TestCollectorOfThePagePassesOnWhatIsRefused(t *testing.T) {
	for _, d := range pageDestinations[:2] {
		t.Run(d.section, func(t *testing.T) {
			address := freeAddress(t)
			c := pageCollector(t, d, address)
			c.start(t)
			to := d.start(t, address)
			batch := versions(1)
			for _, way := range ways {
				r := newReceiver(t, c, way, configv1alpha1.Connection{Insecure: true})
				send(t, r, batch)
				refused := record(7)
				refused.Event.Message = refusedMessage
				if _, err := r.Send(t.Context(), []receiver.Record{refused}); !isPermanent(err) {
					t.Errorf("%s: refused for good, but %v", way.Protocol, err)
				}
			}
			c.stop(t)
			awaitStored(t, to, batch)
		})
	}
}
