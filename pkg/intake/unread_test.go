package intake_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// stalled is an HTTP/2 client with a flow-control window of 0.
type stalled struct {
	token  string
	framer *http2.Framer
	conn   net.Conn
	next   uint32
}

func stall(t *testing.T, address, token string) *stalled {
	t.Helper()
	conn := must(tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
	t.Cleanup(func() { _ = conn.Close() })
	_ = must(io.WriteString(conn, http2.ClientPreface))
	s := &stalled{token: token, framer: http2.NewFramer(conn, conn), conn: conn, next: 1}
	equal(t, "error", s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), nil)
	return s
}

// request makes a request that ends with its headers, or whose body does not arrive.
func (s *stalled) request(t *testing.T, method, path string, end bool) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "eventd"},
		{Name: ":path", Value: path}, {Name: "authorization", Value: "Bearer " + s.token},
	} {
		_ = encoder.WriteField(field)
	}
	err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	equal(t, "error", err, nil)
	s.next += 2
}

func (s *server) unwritten(t *testing.T) float64 {
	t.Helper()
	return s.Metric(t, "eventd_intake_unwritten_bytes")
}

// A response that fits into the server's buffers is not written either, and the server
// keeps its buffer of a body that is not read. None of these requests is in flight.
func TestUnreadAnswersCountThoughTheyAreSmall(t *testing.T) {
	const half, each = 20, 16 << 10
	s := serve(t, written(), (&bearers{}).set, inFlight(30))
	client := stall(t, listenTLS(t, s), "stalled")
	for range half {
		client.request(t, "GET", "/version", true)
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > half*each })
	s.as(t, "stalled", "127.0.0.1", "its-own").Want(t, 201, "") // it has none in flight
	before := s.unwritten(t)
	for range half {
		client.request(t, "POST", "/nonsense", false) // 404, and the body has not ended
	}
	until(t, "all have their answers", func() bool { return s.unwritten(t) > before+half*(each+intake.UploadBufferBytes) })
	_ = client.conn.Close()
	until(t, "the streams end", func() bool { return s.unwritten(t) == 0 })
}

// Those who read no answers take a part of what their tenant may have. Before more is aborted, requests are refused
// before they are handled: 429, and nothing is recorded. Many without rights, or with those of everybody, take no more
// than one of them.
func TestUnreadAnswersOfAUserStopNoOtherOfItsTenant(t *testing.T) {
	const account = "system:serviceaccount:ns:"
	weak := []string{"weak-1", "weak-2", "weak-3", "weak-4", "weak-5"}
	for name, test := range map[string]struct {
		stalled []string
		path    string
		most    float64 // that they may have, in MiB
	}{
		"a user":                              {[]string{"able"}, coreEvents + "/unknown", 8.1},
		"users without rights":                {weak, coreEvents + "/unknown", 4.7},
		"users without rights to read Events": {weak, "/version", 4.7},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written(), (&bearers{}).set, inFlight(1000), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.IsResourceRequest() && strings.HasPrefix(a.GetUser().GetName(), account+"weak") {
					return authorizer.DecisionNoOpinion, "", nil
				}
				return authorizer.DecisionAllow, "", nil
			}))
			var answered atomic.Int64 // or aborted
			address := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer answered.Add(1)
				s.ServeHTTP(w, req)
			}))
			for _, name := range test.stalled {
				refused := s.refused(t, "unread")
				for conns := 0; s.refused(t, "unread") == refused; conns++ {
					if conns == 10 {
						t.Fatalf("%s is refused nothing, with %v bytes unread", name, s.unwritten(t))
					}
					const streams = 100 // fewer than those without rights may have in flight
					client, before := stall(t, address, account+name), answered.Load()
					for range streams {
						client.request(t, "GET", test.path, true)
					}
					until(t, "all are answered", func() bool { return answered.Load() == before+streams })
				}
			}
			if most := s.unwritten(t) / (1 << 20); most > test.most {
				t.Errorf("they have %.2f MiB", most)
			}
			s.as(t, account+"strong", "10.0.0.2", "another").Want(t, 201, "")
			s.Pipeline.WantRecorded(t, 1)
		})
	}
}
