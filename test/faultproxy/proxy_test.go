package faultproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

func TestCloseEndsEverythingAndKeepsTheRecord(t *testing.T) {
	backend := newFake(t)
	p, err := Start(backend.config, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.SetRules(
		Rule{Match: Match{NamePrefix: "late"}, Probability: 1, Fault: LateWrite(Fixed(time.Hour), Status(504))},
		Rule{Match: Match{NamePrefix: "hanging"}, Probability: 1, Fault: BeforeWrite(Hang)},
		Rule{Match: Match{NamePrefix: "lost"}, Probability: 1, Fault: AfterWrite(ResetStream)},
	)
	backend.holdWrites(t)
	c := clientOf(t, p)
	c.create(t.Context(), "ns", "late")
	hanging, lost, passing := c.start(t.Context(), "ns", "hanging"), c.start(t.Context(), "ns", "lost"), c.start(t.Context(), "ns", "passing")
	backend.waitArrived(t, 2)
	await.Until(t, "all are there", func() bool {
		return p.Record().Count(func(e Entry) bool { return e.Number == 1 }) == 4
	})
	p.Freeze()
	p.Close()
	p.Close()
	for _, answer := range []<-chan got{hanging, lost, passing} {
		if g := receive(t, answer); g.err == nil {
			t.Errorf("a client got %d", g.code)
		}
	}
	if n := p.Record().Count(func(e Entry) bool { return e.Ended }); n != 4 {
		t.Errorf("the record is %+v", p.Record())
	}
	if p.Resume() == nil {
		t.Error("a closed proxy can be resumed")
	}
}

// failing is a test that fails.
type failing struct {
	testing.TB
	cleanups []func()
	logged   string
}

func (f *failing) Cleanup(c func())                  { f.cleanups = append(f.cleanups, c) }
func (f *failing) Failed() bool                      { return true }
func (f *failing) Logf(format string, values ...any) { f.logged += fmt.Sprintf(format, values...) }

func TestSeedAndTableAreLoggedWhenATestFails(t *testing.T) {
	f := &failing{TB: t}
	p := New(f, newFake(t).config, 4711)
	clientOf(t, p).create(t.Context(), "ns", "a")
	for _, c := range f.cleanups {
		c()
	}
	if !strings.Contains(f.logged, "seed 4711") || !strings.Contains(f.logged, p.Record().Table()) {
		t.Errorf("logged is %q", f.logged)
	}
}

// whoAmI answers with the credentials that it was shown.
func whoAmI(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%q %d", r.Header.Get("Authorization"), len(r.TLS.PeerCertificates))
}

func TestCredentialsAreThoseOfTheClientOrElseTheCertificateOfTheBackendsConfig(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(whoAmI))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	certificate, key := clientCertificate(t)
	withCertificate := rest.TLSClientConfig{CAData: ca, CertData: certificate, KeyData: key}
	for name, test := range map[string]struct {
		backend rest.Config
		header  []string
		want    string
	}{
		"certificate":                   {rest.Config{TLSClientConfig: withCertificate}, nil, `"" 1`},
		"token":                         {rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}, BearerToken: "t"}, nil, `"Bearer t" 0`},
		"certificate, client has token": {rest.Config{TLSClientConfig: withCertificate}, []string{"Authorization", "Bearer own"}, `"Bearer own" 0`},
		"none":                          {rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, nil, `"" 0`},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} { // passed on, and written
			t.Run(name+", "+method, func(t *testing.T) {
				test.backend.Host = server.URL
				p := New(t, &test.backend, 1)
				if c := p.Config(); len(c.CertData)+len(c.KeyData) != 0 {
					t.Error("the client is given the certificate")
				}
				g := clientOf(t, p).do(t.Context(), method, core, eventNamed("a"), test.header...)
				if g.body != test.want || g.err != nil {
					t.Errorf("the backend was shown %s, %v; want %s", g.body, g.err, test.want)
				}
			})
		}
	}
}

func clientCertificate(t *testing.T) (certificate, key []byte) {
	pair, certificate, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// What a broken connection to the backend looks like to the client.
func TestBackendThatIsAwayBreaksRequestsOff(t *testing.T) {
	backend := newFake(t)
	backend.config.Host = "https://127.0.0.1:1"
	p := New(t, backend.config, 1)
	c := clientOf(t, p)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if g := c.do(t.Context(), method, core, eventNamed("a")); g.err == nil {
			t.Errorf("%s: the client got %d", method, g.code)
		}
	}
	if e := onlyEntry(t, p); !e.Forwarded || e.Err == nil || e.Status != 0 || e.Answer != 0 {
		t.Errorf("recorded is %+v", e)
	}
}

func TestConfigsThatCannotWorkAreErrors(t *testing.T) {
	for name, config := range map[string]*rest.Config{
		"host": {Host: "https://[::1"},
		"CA":   {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}},
	} {
		if p, err := Start(config, 1); err == nil {
			p.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRecordAddsUp(t *testing.T) {
	p := New(t, newFake(t).config, 1)
	p.SetRules(
		Rule{Match: Match{NamePrefix: "lost"}, Probability: 1, Fault: AfterWrite(ResetStream)},
		Rule{Match: Match{NamePrefix: "refused"}, Probability: 1, Fault: BeforeWrite(Status(503).RetryAfter(1))},
	)
	c := clientOf(t, p)
	for _, name := range []string{"a", "lost", "refused", "lost", "b"} {
		c.create(t.Context(), "ns", name)
	}
	c.do(t.Context(), http.MethodPatch, core+"/a", "{}")
	waitQuiet(t, p)
	want := map[string]Tally{
		"":                             {Requests: 3, Empty: 1, Forwarded: 3, Succeeded: 3},
		"stream reset after the write": {Requests: 2, Forwarded: 2, Succeeded: 2, NoAnswer: 2},
		"503 with Retry-After 1 before the write": {Requests: 1},
	}
	r := p.Record()
	for kind, got := range r.Tallies() {
		if got != want[kind] {
			t.Errorf("%q: %+v, want %+v", kind, got, want[kind])
		}
		delete(want, kind)
	}
	if len(want) != 0 {
		t.Errorf("missing are %v", want)
	}
	const table = `fault                                    writes  empty  forwarded  succeeded  unanswered
none                                     3       1      3          3          0
503 with Retry-After 1 before the write  1       0      0          0          0
stream reset after the write             2       0      2          2          2
`
	if got := r.Table(); got != table {
		t.Errorf("the table is\n%s", got)
	}
}

func TestQuietWaitsAndGivesUpWhenToldTo(t *testing.T) {
	backend := newFake(t)
	p := New(t, backend.config, 1)
	waitQuiet(t, p) // nothing has happened
	release := backend.holdWrites(t)
	answer := clientOf(t, p).start(t.Context(), "ns", "a")
	backend.waitArrived(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no time")
	cancel(why)
	if err := p.Quiet(ctx); err != why {
		t.Errorf("Quiet says %v, though a write is under way", err)
	}
	release()
	waitQuiet(t, p)
	wantCreated(t, receive(t, answer))
}

// A key function that panics is an error of the test. It must be logged, and end only
// its own write.
func TestPanicOfAKeyEndsItsWriteOnly(t *testing.T) {
	_, p, c := setUp(t)
	p.SetKey(func(r Request) string {
		if r.Name == "a" {
			panic("of a test; the stack trace here is expected")
		}
		return r.Name
	})
	if g := c.create(t.Context(), "ns", "a"); g.err == nil {
		t.Errorf("the client got %d", g.code)
	}
	wantCreated(t, c.create(t.Context(), "ns", "b"))
	waitQuiet(t, p)
}
