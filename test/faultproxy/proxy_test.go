package faultproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/test/await"
)

// Pause is the end of an apiserver, and Close also that of the proxy, which does not wait
// for what a fault has struck. Both may be called again.
func TestPauseAndCloseAreTheEndOfAnAPIServer(t *testing.T) {
	for name, end := range map[string]func(*Proxy){"Pause": (*Proxy).Pause, "Close": (*Proxy).Close} {
		t.Run(name, func(t *testing.T) {
			backend, p, c := setUp(t, always(BeforeWrite(Hang), "hanging"), always(AfterWrite(ResetStream), "lost"),
				always(LateWrite(Fixed(time.Hour), Status(504)), "late"))
			config, err := rest.TLSConfigFor(p.Config())
			if err != nil {
				t.Fatal(err)
			}
			idle, err := tls.Dial("tcp", p.address.String(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			idle.SetDeadline(time.Now().Add(await.Timeout))
			fmt.Fprint(idle, "GET / HTTP/1.1\r\nHost: proxy\r\n\r\n")
			if _, err := idle.Read(make([]byte, 1)); err != nil { // it has read all that was sent
				t.Fatal(err)
			}
			c.create(t.Context(), "late").want(t, 504)
			backend.held.Store(true)
			forwarded := []string{"passing"}
			if name == "Close" {
				forwarded = append(forwarded, "lost")
			}
			var answers []<-chan got
			for _, write := range append(forwarded, "hanging") {
				answers = append(answers, c.start(t.Context(), write))
			}
			waitStruck(t, p, 1+len(forwarded)) // late, hanging, and on Close lost
			for range 1 + len(forwarded) {     // with that of the idle connection
				receive(t, backend.arrived)
			}

			end(p)
			end(p)
			if _, err := io.ReadAll(idle); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("an idle connection got %v", err)
			}
			for _, answer := range answers {
				receive(t, answer).want(t, 0)
			}
			for _, e := range p.Record() {
				if !e.Ended || e.Status != 0 || e.Forwarded != slices.Contains(forwarded, e.Name) {
					t.Errorf("recorded is %+v", e)
				}
			}
			await.Until(t, "a client that has noticed is refused", func() bool {
				return errors.Is(c.create(t.Context(), "refused").Err, syscall.ECONNREFUSED)
			})
			backend.release()
			err = errors.Join(p.Resume(), p.Resume()) // under the same address, and twice
			if name == "Close" && err == nil {
				t.Error("a closed proxy is resumed")
			}
			if name == "Pause" {
				await.Until(t, "the client gets an answer", func() bool { return c.create(t.Context(), "a").Code == http.StatusCreated })
			}
		})
	}
}

// After Pause there are no requests to the backend, and all of its answers are known.
func TestPauseWaitsForStruckWritesThatAreWithTheBackend(t *testing.T) {
	backend, p, c := setUp(t, always(AfterWrite(ResetStream)))
	backend.held.Store(true)
	answer := c.start(t.Context(), "a")
	receive(t, backend.arrived)
	paused := make(chan struct{})
	go func() { p.Pause(); close(paused) }()
	receive(t, answer) // the connections are reset
	select {
	case <-paused:
		t.Error("Pause does not wait")
	default:
	}
	backend.release()
	<-paused
	if e := p.Record()[0]; !e.Ended || e.Status != 201 {
		t.Errorf("recorded is %+v", e)
	}
}

// A write holds its slot until it has ended, hangs included, and no longer: a client
// that makes the next request as soon as it has its answer finds its slot free.
func TestWritesAboveTheCapacityAreRefused(t *testing.T) {
	backend, p, c := setUp(t, always(BeforeWrite(Hang), "stuck"), always(AfterWrite(Status(500)), "struck"))
	p.SetCapacity(2)
	backend.held.Store(true)
	passing := c.start(t.Context(), "a")
	receive(t, backend.arrived)
	ctx, giveUp := context.WithCancel(t.Context())
	stuck := c.start(ctx, "stuck")
	waitStruck(t, p, 1)
	g := c.create(t.Context(), "b")
	if g.want(t, 429); g.Header.Get("Retry-After") != "1" || p.Record()[2].Fault != "over capacity" {
		t.Errorf("the third got %+v, and is recorded as %+v", g, p.Record()[2])
	}
	p.SetCapacity(1) // less than there are
	giveUp()
	receive(t, stuck)
	c.create(t.Context(), "c").want(t, 429)
	backend.release()
	receive(t, passing).want(t, 201)
	for i := range 100 {
		c.create(t.Context(), fmt.Sprint(i)).want(t, 201)
		c.create(t.Context(), fmt.Sprint("struck-", i)).want(t, 500)
	}
}

// With the credentials of the backend's configuration a test of rights would be worth
// nothing.
func TestCredentialsAreThoseOfTheClientOrElseTheCertificateOfTheBackendsConfig(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %d", r.Header.Get("Authorization"), len(r.TLS.PeerCertificates))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate, key, err := cert.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	token := rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: caOf(server)}, BearerToken: "t"}
	both := rest.Config{Host: server.URL, TLSClientConfig: token.TLSClientConfig}
	both.CertData, both.KeyData = certificate, key
	for name, test := range map[string]struct {
		backend *rest.Config
		header  []string
		want    string
	}{
		"token":                         {&token, nil, `"Bearer t" 0`},
		"certificate":                   {&both, nil, `"" 2`},
		"certificate, client has token": {&both, []string{"Authorization", "Bearer own"}, `"Bearer own" 0`},
	} {
		p := New(t, test.backend, 1)
		for _, method := range []string{http.MethodGet, http.MethodPost} { // not an Event write, and one
			if g := clientOf(t, p).do(t.Context(), method, core, eventNamed("a"), test.header...); g.Body != test.want {
				t.Errorf("%s, %s: the backend got %s, %v; want %s", name, method, g.Body, g.Err, test.want)
			}
		}
	}
}

func TestBackendThatIsAwayBreaksRequestsOff(t *testing.T) {
	p := New(t, &rest.Config{Host: "https://127.0.0.1:1"}, 1)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		clientOf(t, p).do(t.Context(), method, core, eventNamed("a")).want(t, 0)
	}
	if e := onlyEntry(t, p); !e.Forwarded || e.Status != 0 || e.Answer != 0 {
		t.Errorf("recorded is %+v", e)
	}
}
