package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// A client that connects before the CA of its certificate is known is anonymous, for as
// long as its connection lives: a client of its own, or the apiserver, which passes others on.
func TestNothingIsServedBeforeClientCertificatesCanBeVerified(t *testing.T) {
	for name, published := range map[string]func(ca string) map[string]string{
		"of clients":     func(ca string) map[string]string { return map[string]string{"client-ca-file": ca} },
		"of front proxy": frontProxy,
	} {
		t.Run(name, func(t *testing.T) {
			a := startAPIServer(t)
			a.authentication = published(string(a.config().CAData))
			r := beginRunning(t, a)

			listing, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			select {
			case err := <-r.result:
				t.Fatal(err)
			case <-listing.Done(): // long enough to have served otherwise
			}
			if _, err := os.Stat(r.endpoint); !errors.Is(err, os.ErrNotExist) {
				t.Error("serves without knowing the CA of client certificates")
			}
			close(a.listable)
			r.awaitServing(t)
			if !acceptable(t, r, a.server.Certificate().RawSubject) {
				t.Error("asks for no certificate of the CA")
			}
			r.terminate(t)
		})
	}
}

// frontProxy is what a kube-apiserver with aggregation publishes.
func frontProxy(ca string) map[string]string {
	return map[string]string{"requestheader-client-ca-file": ca, "requestheader-username-headers": `["X-Remote-User"]`}
}

// acceptable reports whether the server names a CA in its handshake. A client presents no certificate of
// another one.
func acceptable(t *testing.T, r *running, ca []byte) (named bool) {
	t.Helper()
	config, err := rest.TLSConfigFor(r.config)
	if err != nil {
		t.Fatal(err)
	}
	config.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		named = slices.ContainsFunc(asked.AcceptableCAs, func(name []byte) bool { return bytes.Equal(name, ca) })
		return &tls.Certificate{}, nil
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(r.config.Host, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	return named
}

// A cluster without aggregation publishes no front proxy, and one without a CA no clients'.
func TestWhatIsNotPublishedIsNotAwaited(t *testing.T) {
	a := startAPIServer(t)
	a.authentication = map[string]string{"unrelated": "1"}
	startRunning(t, a).terminate(t)
}

func TestSignalEndsAStartThatTheClusterDoesNotAnswer(t *testing.T) {
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		a := startAPIServer(t)
		a.authentication = frontProxy("requested")
		a.authentication[key] = "requested"
		beginRunning(t, a).terminate(t)
	}
}
