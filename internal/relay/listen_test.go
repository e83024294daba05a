package relay_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/pkg/election"
)

// listening is a replica, or what stands for one, that others can reach.
type listening struct {
	*httptest.Server
	connections atomic.Int32 // that were made
	open        atomic.Int32
}

// listen serves with TLS as eventd's own server does, unless it is changed. All have the
// certificate of httptest.
func listen(t testing.TB, handler http.Handler, changes ...func(*httptest.Server)) *listening {
	t.Helper()
	l := &listening{Server: httptest.NewUnstartedServer(handler)}
	l.EnableHTTP2 = true
	l.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	l.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			l.connections.Add(1)
			l.open.Add(1)
		case http.StateClosed:
			l.open.Add(-1)
		}
	}
	for _, change := range changes {
		change(l.Server)
	}
	if l.TLS == nil {
		l.TLS = &tls.Config{}
	}
	l.TLS.NextProtos = []string{"h2", "http/1.1"}
	l.StartTLS()
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

// at has a server listen at an address.
func at(t testing.TB, address string) func(*httptest.Server) {
	return func(s *httptest.Server) {
		_ = s.Listener.Close()
		s.Listener = listenTCP(t, address)
	}
}

// withAnotherCertificate has a server prove to be another one.
func withAnotherCertificate(t testing.TB) func(*httptest.Server) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := must(tls.X509KeyPair(certificate, key))
	return func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}} }
}

func listenTCP(t testing.TB, address string) net.Listener {
	t.Helper()
	listener := must(net.Listen("tcp", address))
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func (l *listening) address() string { return l.Listener.Addr().String() }

func (l *listening) fingerprint() string { return election.Fingerprint(l.Certificate()) }

// leads names the leader to replicas.
func (l *listening) leads(replicas ...*replica) {
	for _, r := range replicas {
		r.relay.SetLeader(election.Announcement{Address: l.address(), CertificateSHA256: l.fingerprint()})
	}
}

// capture stands for a leader: it keeps what it is sent, and answers 201 or as it is set.
type capture struct {
	*listening
	answer http.HandlerFunc
	mu     sync.Mutex
	got    []sent
}

// sent is a request that has arrived.
type sent struct {
	*http.Request
	body string
}

func newCapture(t *testing.T, changes ...func(*httptest.Server)) *capture {
	t.Helper()
	c := &capture{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }}
	c.listening = listen(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		c.mu.Lock()
		c.got = append(c.got, sent{req, string(body)})
		c.mu.Unlock()
		c.answer(w, req)
	}), changes...)
	return c
}

func (c *capture) requests() []sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// forwards returns a replica to which this leader is named.
func (c *capture) forwards(t testing.TB, o options) *replica {
	t.Helper()
	r := newReplica(t, o)
	c.leads(r)
	return r
}

func (c *capture) wantSent(t testing.TB, want int) {
	t.Helper()
	if got := len(c.requests()); got != want {
		t.Errorf("sent %d times, want %d", got, want)
	}
}

// mutedAt has a server write nothing any more once a channel is closed, as a process that
// is stopped.
func mutedAt(stopped <-chan struct{}) func(*httptest.Server) {
	return func(s *httptest.Server) { s.Listener = muting{s.Listener, stopped} }
}

type muting struct {
	net.Listener
	stopped <-chan struct{}
}

func (l muting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return muted{conn, l.stopped}, err
}

type muted struct {
	net.Conn
	stopped <-chan struct{}
}

func (c muted) Write(b []byte) (int, error) {
	select {
	case <-c.stopped:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}
