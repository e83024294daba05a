package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// fake is an apiserver that accepts every write, and records it.
type fake struct {
	config *rest.Config
	// arrived gets a value per write, before its answer, unless it is full.
	arrived chan struct{}

	mu     sync.Mutex
	writes []write
	hold   chan struct{} // nil, or writes are answered when it is closed
}

type write struct {
	method, path, body string
	header             http.Header
	at                 time.Time
}

func newFake(t testing.TB) *fake {
	f := &fake{arrived: make(chan struct{}, 1000)}
	server := httptest.NewUnstartedServer(f)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f.config = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.writes = append(f.writes, write{r.Method, r.URL.RequestURI(), string(body), r.Header, time.Now()})
	hold := f.hold
	f.mu.Unlock()
	select {
	case f.arrived <- struct{}{}:
	default: // no test waits for it
	}
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", "of the backend")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"kind":"Event","apiVersion":"v1"}`)
}

// holdWrites makes the fake answer no write until release is called, or the test
// ends.
func (f *fake) holdWrites(t *testing.T) (release func()) {
	hold := make(chan struct{})
	f.mu.Lock()
	f.hold = hold
	f.mu.Unlock()
	release = sync.OnceFunc(func() {
		f.mu.Lock()
		f.hold = nil
		f.mu.Unlock()
		close(hold)
	})
	t.Cleanup(release)
	return release
}

func (f *fake) seen() []write {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]write(nil), f.writes...)
}

func (f *fake) wantWrites(t *testing.T, n int) {
	t.Helper()
	if got := len(f.seen()); got != n {
		t.Errorf("the backend got %d writes, want %d", got, n)
	}
}

// waitArrived waits for n more writes to reach the fake.
func (f *fake) waitArrived(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-f.arrived:
		case <-time.After(30 * time.Second):
			t.Fatal("no write reached the backend")
		}
	}
}

// The two protocols that a client may speak.
var protocols = map[string][]string{"HTTP/2.0": nil, "HTTP/1.1": {"http/1.1"}}

// setUp returns a fake apiserver, a proxy with rules in front of it, and a client of
// the proxy.
func setUp(t *testing.T, rules ...Rule) (*fake, *Proxy, *client) {
	t.Helper()
	backend := newFake(t)
	p := New(t, backend.config, 1)
	p.SetRules(rules...)
	return backend, p, clientOf(t, p)
}

// client speaks to a proxy.
type client struct {
	http *http.Client
	host string
}

func clientOf(t *testing.T, p *Proxy, nextProtos ...string) *client {
	config := p.Config()
	config.NextProtos = nextProtos
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client{h, config.Host}
}

// got is what a client got.
type got struct {
	code   int
	proto  string
	header http.Header
	body   string
	err    error
}

func (c *client) do(ctx context.Context, method, path, body string, header ...string) got {
	r, err := http.NewRequestWithContext(ctx, method, c.host+path, strings.NewReader(body))
	if err != nil {
		return got{err: err}
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		return got{err: err}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return got{response.StatusCode, response.Proto, response.Header, string(answer), err}
}

// create posts an Event of core/v1.
func (c *client) create(ctx context.Context, namespace, name string) got {
	return c.do(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/events", eventNamed(name))
}

// start creates in the background.
func (c *client) start(ctx context.Context, namespace, name string) <-chan got {
	answer := make(chan got, 1)
	go func() { answer <- c.create(ctx, namespace, name) }()
	return answer
}

func eventNamed(name string) string {
	body, err := json.Marshal(map[string]any{"kind": "Event", "apiVersion": "v1", "metadata": map[string]string{"name": name}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// dial makes a connection that speaks HTTP/1.1.
func dial(t *testing.T, p *Proxy) *tls.Conn {
	t.Helper()
	config, err := rest.TLSConfigFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", p.front.address.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func receive(t *testing.T, from <-chan got) got {
	t.Helper()
	select {
	case g := <-from:
		return g
	case <-time.After(30 * time.Second):
		t.Fatal("the client has no answer")
		return got{}
	}
}

func wantCreated(t *testing.T, g got) {
	t.Helper()
	if g.err != nil || g.code != http.StatusCreated {
		t.Errorf("the client got %d, %v; want the backend's 201", g.code, g.err)
	}
}

// onlyEntry waits until the proxy is quiet, and returns the one entry that there must be.
func onlyEntry(t *testing.T, p *Proxy) Entry {
	t.Helper()
	waitQuiet(t, p)
	r := p.Record()
	if len(r) != 1 {
		t.Fatalf("the record is %+v, want one entry", r)
	}
	return r[0]
}

func waitQuiet(t *testing.T, p *Proxy) {
	t.Helper()
	ctx, cancel := await.Context(t)
	defer cancel()
	if err := p.Quiet(ctx); err != nil {
		t.Fatalf("not quiet: %v; %+v", err, p.Record())
	}
}

// always strikes every write.
func always(f Fault) Rule { return Rule{Probability: 1, Fault: f} }
