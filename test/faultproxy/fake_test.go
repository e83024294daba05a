package faultproxy

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/request"
)

const (
	core   = "/api/v1/namespaces/ns/events"
	events = "/apis/events.k8s.io/v1/namespaces/ns/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an apiserver that accepts every write.
type fake struct {
	config  *rest.Config
	arrived chan write // before their answers
	writes  atomic.Int64
	// held has the fake answer no write until release is called, or the test ends.
	held     atomic.Bool
	released chan struct{}
	release  func()
}

type write struct {
	method, path string
	at           time.Time
}

func newFake(t *testing.T) *fake {
	f := &fake{arrived: make(chan write, 1000), released: make(chan struct{})}
	f.release = sync.OnceFunc(func() { close(f.released) })
	server := httptest.NewUnstartedServer(f)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(f.release)
	f.config = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: caOf(server)}, QPS: -1}
	return f
}

func caOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.writes.Add(1)
	f.arrived <- write{r.Method, r.URL.RequestURI(), time.Now()}
	if f.held.Load() {
		select {
		case <-f.released:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"kind":"Event","apiVersion":"v1"}`)
}

func (f *fake) wantWrites(t *testing.T, n int64) {
	t.Helper()
	if got := f.writes.Load(); got != n {
		t.Errorf("the backend got %d writes, want %d", got, n)
	}
}

// setUp returns a fake apiserver, a proxy with rules in front of it, and a client of
// the proxy.
func setUp(t *testing.T, rules ...Rule) (*fake, *Proxy, *client) {
	t.Helper()
	backend := newFake(t)
	p := New(t, backend.config, 1)
	p.SetRules(rules...)
	return backend, p, clientOf(t, p)
}

// always strikes every write, or only those of Events whose names begin with a prefix.
func always(f Fault, prefix ...string) Rule {
	return Rule{Match: Match{NamePrefix: strings.Join(prefix, "")}, Probability: 1, Fault: f}
}

// client is a client of a proxy.
type client struct {
	http *http.Client
	host string
}

func clientOf(t *testing.T, p *Proxy) *client {
	h, err := rest.HTTPClientFor(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &client{h, p.Config().Host}
}

func (c *client) do(ctx context.Context, method, path, body string, header ...string) got {
	return got{request.Do(ctx, c.http, method, c.host+path, body, header...)}
}

// got is what a client got.
type got struct{ request.Answer }

// create posts an Event of core/v1.
func (c *client) create(ctx context.Context, name string) got {
	return c.do(ctx, http.MethodPost, core, eventNamed(name))
}

// start creates in the background.
func (c *client) start(ctx context.Context, name string) <-chan got {
	answer := make(chan got, 1)
	go func() { answer <- c.create(ctx, name) }()
	return answer
}

func eventNamed(name string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"v1","metadata":{"name":%q}}`, name)
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(await.Timeout):
		t.Fatalf("no %T in time", v)
	}
	return v
}

// want checks the code of an answer; 0 is none.
func (g got) want(t *testing.T, code int) {
	t.Helper()
	if g.Code != code || (g.Err != nil) != (code == 0) {
		t.Errorf("the client got %d, %v; want %d", g.Code, g.Err, code)
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

// waitStruck waits until n writes have met a fault.
func waitStruck(t *testing.T, p *Proxy, n int) {
	t.Helper()
	await.Until(t, fmt.Sprint(n, " writes to be struck"), func() bool {
		return p.Record().Count(func(e Entry) bool { return e.Fault != "" }) == n
	})
}
