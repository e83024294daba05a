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
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certified returns a CA and a client certificate that it has signed.
func certified(t *testing.T) (ca, certificate, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "authority"}, signer)
	if err != nil {
		t.Fatal(err)
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, client, authority, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(signer); err != nil {
		t.Fatal(err)
	}
	if ca, err = cert.EncodeCertificates(authority); err != nil {
		t.Fatal(err)
	}
	return ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
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
