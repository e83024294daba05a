package connection_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/receivertest"
)

// plain starts a server without TLS, and returns a client of it.
func plain(t *testing.T, timeout time.Duration, handle http.HandlerFunc) *connection.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return newClient(t, server.URL+"?key=secret", &configv1alpha1.Connection{Insecure: true}, timeout)
}

func newClient(t *testing.T, url string, c *configv1alpha1.Connection, timeout time.Duration) *connection.Client {
	t.Helper()
	client, err := connection.NewClient(url, c, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func post(ctx context.Context, client *connection.Client) (*connection.Response, error) {
	return client.Post(ctx, []byte("body"), "text/plain", "")
}

func TestURLThatDoesNotFitIsRefusedWithoutShowingIt(t *testing.T) {
	for _, url := range []string{"", "collector:4318", "ftp://h/secret", "https://user:secret@h", "https://h/secret#f", "http://h/secret", "https://h:secret", "https:///secret"} {
		_, err := connection.NewClient(url, &configv1alpha1.Connection{}, 0)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := connection.NewClient("https://h", &configv1alpha1.Connection{Insecure: true}, 0); err == nil {
		t.Error("https with insecure is accepted")
	}
}

func TestErrorOfAStatusHasItsDelayAndABoundedText(t *testing.T) {
	for status, want := range map[int]receiver.Error{
		307: {}, 400: {Permanent: true}, 413: {RetryAfter: 3 * time.Second}, 404: {RetryAfter: 3 * time.Second}, 503: {RetryAfter: 3 * time.Second},
	} {
		client := plain(t, 0, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "why\x1b[31m"+strings.Repeat("y", 10_000))
		})
		response, err := post(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := errors.AsType[*receiver.Error](response.Err())
		if !ok || got.Permanent != want.Permanent || got.RetryAfter != want.RetryAfter {
			t.Errorf("%d: %+v, want %+v", status, got, want)
		}
		if ok && strings.ContainsRune(got.Error(), '\x1b') {
			t.Errorf("%d: a control character of the destination is in %q", status, got)
		}
		if ok && len(got.Error()) > 300 {
			t.Errorf("%d: the error has %d bytes", status, len(got.Error()))
		}
	}
	for _, status := range []int{200, 201, 202, 204} {
		if err := (&connection.Response{Status: status}).Err(); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// All Events would be lost for an error in the configuration.
func TestServerThatExpectsTLSRefusesNothingForGood(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := newClient(t, strings.Replace(server.URL, "https:", "http:", 1), &configv1alpha1.Connection{Insecure: true}, 0)
	response, err := post(t.Context(), client)
	if err != nil || response.Status != http.StatusBadRequest {
		t.Fatalf("%+v, %v", response, err)
	}
	for text, permanent := range map[string]bool{
		string(response.Body): false,
		"<html>\r\n<head><title>400 No required SSL certificate was sent</title></head>": false,
		"Event: " + string(response.Body):                                                true,
		"":                                                                               true,
	} {
		got, ok := errors.AsType[*receiver.Error]((&connection.Response{Status: http.StatusBadRequest, Body: []byte(text)}).Err())
		if !ok || got.Permanent != permanent {
			t.Errorf("%q: %v, want permanent: %v", text, got, permanent)
		}
	}
}

// It would hold up its receiver for as long as the server keeps the connection.
func TestServerThatSwitchesProtocolsIsNotReadFrom(t *testing.T) {
	client := plain(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client has closed it
	})
	if response, err := post(t.Context(), client); err == nil {
		t.Errorf("%+v", response)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer other.Close()
	client := plain(t, 0, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	response, err := post(t.Context(), client)
	if err != nil || response.Status != http.StatusTemporaryRedirect || followed.Load() {
		t.Errorf("%+v, %v, followed: %v", response, err, followed.Load())
	}
}

func TestServerThatNeverAnswersCostsTheTimeout(t *testing.T) {
	client := plain(t, 50*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := post(t.Context(), client)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
}

// "context deadline exceeded" alone does not say whether DNS, a network policy or the destination is the reason.
func TestTimeoutNamesItsStep(t *testing.T) {
	receivertest.HangLookups(t)
	silent, unanswered := receivertest.Silent(t), receivertest.Unanswered(t)
	for name, test := range map[string]struct {
		url, want string
		body      int
	}{
		"lookup":   {"https://collector.example:4318", "looking up collector.example: ", 1},
		"dial":     {"https://" + unanswered, "connecting to " + unanswered + ": ", 1},
		"TLS":      {"https://" + silent, "TLS handshake: ", 1},
		"request":  {"http://" + silent, "sending: ", 16 << 20},
		"response": {"http://" + silent, "waiting for the response: ", 1},
	} {
		t.Run(name, func(t *testing.T) {
			insecure := strings.HasPrefix(test.url, "http:")
			client := newClient(t, test.url+"/?key=secret", &configv1alpha1.Connection{Insecure: insecure}, 50*time.Millisecond)
			await.Until(t, test.want, func() bool { // a busy machine may time out before
				_, err := client.Post(t.Context(), make([]byte, test.body), "text/plain", "")
				if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("the error is %v", err)
				}
				return strings.HasPrefix(err.Error(), test.want)
			})
		})
	}
}

func TestContextEndsARequest(t *testing.T) {
	arrived := make(chan struct{})
	client := plain(t, time.Hour, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := post(ctx, client); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestResponseIsReadUpToALimit(t *testing.T) {
	client := plain(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // until the client closes the connection
			_, _ = w.Write(make([]byte, 4<<10))
		}
	})
	response, err := post(t.Context(), client)
	if err != nil || response.BodyErr == nil || len(response.Body) != connection.MaxResponseBytes {
		t.Errorf("%d bytes, %v, %v", len(response.Body), response.BodyErr, err)
	}
}

func TestHeaderOfAResponseIsReadUpToALimit(t *testing.T) {
	client := plain(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Huge", strings.Repeat("h", 100<<10))
	})
	if response, err := post(t.Context(), client); err == nil {
		t.Errorf("status %d", response.Status)
	}
}

// By HTTP/2, a connection lasts although a request has no answer: a proxy may keep it whose other end
// is gone.
func TestConnectionWithoutAnAnswerIsNotUsedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var peers []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peers = append(peers, r.RemoteAddr); len(peers) == 1 {
			cancel()
			<-r.Context().Done()
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = discard
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client := newClient(t, server.URL, &configv1alpha1.Connection{TLS: &configv1alpha1.TLS{
		CAFile: receivertest.WriteFile(t, t.TempDir(), "ca.crt", ca),
	}}, 0)
	if _, err := post(ctx, client); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if _, err := post(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if len(peers) != 2 || peers[0] == peers[1] {
		t.Errorf("the requests came from %q", peers)
	}
}

// The name is that of the certificate, whatever the address is.
func TestServerNameIsVerified(t *testing.T) {
	ca := receivertest.NewCA(t, "ca")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = ca.ServerTLS(t, nil)
	server.Config.ErrorLog = discard
	server.StartTLS()
	defer server.Close()
	file := receivertest.WriteFile(t, t.TempDir(), "ca.crt", ca.PEM)
	for name, ok := range map[string]bool{"": true, "127.0.0.1": true, "collector.example": false} {
		client := newClient(t, server.URL, &configv1alpha1.Connection{TLS: &configv1alpha1.TLS{CAFile: file, ServerName: name}}, 0)
		if _, err := post(t.Context(), client); (err == nil) != ok {
			t.Errorf("server name %q: %v", name, err)
		}
	}
}

func TestResponseThatComesSlowlyCostsTheTimeout(t *testing.T) {
	client := plain(t, time.Second, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("a"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	response, err := post(t.Context(), client)
	if err != nil || !errors.Is(response.BodyErr, context.DeadlineExceeded) || string(response.Body) != "a" {
		t.Errorf("%+v, %v", response, err)
	}
}

func TestConnectionThatIsClosedIsAnError(t *testing.T) {
	var requests atomic.Int32
	client := plain(t, 0, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	if _, err := post(t.Context(), client); err == nil || requests.Load() != 1 {
		t.Errorf("the error is %v, after %d requests", err, requests.Load())
	}
}

func TestRotatedCertificatesAreUsedFromTheNextRequest(t *testing.T) {
	servers, clients := []*receivertest.CA{receivertest.NewCA(t, "s0"), receivertest.NewCA(t, "s1")}, []*receivertest.CA{receivertest.NewCA(t, "c0"), receivertest.NewCA(t, "c1")}
	configs := []*tls.Config{servers[0].ServerTLS(t, clients[0]), servers[1].ServerTLS(t, clients[1])}
	var generation atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Client", r.TLS.PeerCertificates[0].Issuer.CommonName)
		w.Header().Set("Protocol", r.Proto)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := configs[generation.Load()].Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		return config, nil
	}}
	server.Config.ErrorLog = discard
	server.StartTLS()
	defer server.Close()

	dir := t.TempDir()
	rotate := func(ca, client *receivertest.CA) {
		cert, key := client.Issue(t, "client")
		receivertest.WriteFile(t, dir, "ca.crt", ca.PEM)
		receivertest.WriteFile(t, dir, "tls.crt", cert)
		receivertest.WriteFile(t, dir, "tls.key", key)
	}
	rotate(servers[0], clients[0])
	client := newClient(t, server.URL, &configv1alpha1.Connection{TLS: &configv1alpha1.TLS{
		CAFile: dir + "/ca.crt", CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key",
	}}, 0)
	check := func(issuer string) {
		t.Helper()
		response, err := post(t.Context(), client)
		if err != nil || response.Header.Get("Client") != issuer || response.Header.Get("Protocol") != "HTTP/2.0" {
			t.Fatalf("%+v, %v; want a client of %s", response, err, issuer)
		}
	}
	check("c0")
	generation.Store(1)
	check("c0") // the connection stays
	rotate(servers[1], clients[1])
	check("c1")
	rotate(servers[0], clients[1])
	if response, err := post(t.Context(), client); err == nil {
		t.Errorf("a server of another CA is trusted: %+v", response)
	}
}
