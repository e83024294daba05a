package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// certified returns a CA and a client certificate that it has signed.
func certified(t *testing.T) (ca, certificate, key []byte) {
	t.Helper()
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(template, parent *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, signer.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	authority, client := template("authority"), template("somebody")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.MarshalECPrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return sign(authority, authority), sign(client, authority), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func TestNothingIsServedBeforeClientCertificatesCanBeVerified(t *testing.T) {
	a := startAPIServer(t)
	var certificate, key []byte
	a.clientCA, certificate, key = certified(t)
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
	certified := rest.AnonymousClientConfig(r.config)
	certified.CertData, certified.KeyData = certificate, key
	wantAnswer(t, certified, "/metrics", http.StatusOK, "") // the first request with a client certificate
	r.terminate(t)
}

func TestSignalEndsAStartThatTheClusterDoesNotAnswer(t *testing.T) {
	a := startAPIServer(t)
	a.clientCA = []byte("requested")
	beginRunning(t, a).terminate(t)
}
