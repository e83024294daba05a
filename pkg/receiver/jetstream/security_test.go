package jetstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	receiverconnection "github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/test/await"
)

// identity writes a new certificate, which is its own CA, and its key to NAME.crt and NAME.key.
func identity(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write := func(suffix, kind string, der []byte) string {
		must(t, os.WriteFile(name+suffix, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return name + suffix
	}
	return write(".crt", "CERTIFICATE", cert), write(".key", "PRIVATE KEY", private)
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	serverCert, serverKey := identity(t, filepath.Join(dir, "server"))
	clientCert, clientKey := identity(t, filepath.Join(dir, "client"))
	s := startServer(t, withJetStream+fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n",
		serverCert, serverKey, clientCert))
	files := func() nats.Option { // those of now
		config, err := receiverconnection.TLS(&v1alpha1.TLS{CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey})
		must(t, err)
		return nats.Secure(config)
	}
	s.stream(t, nil, files())

	config := v1alpha1.JetStream{URL: strings.Replace(s.url(), "nats:", "tls:", 1), TLS: &v1alpha1.TLS{CAFile: filepath.Join(dir, "ca")}}
	r := newReceiver(t, config)
	batch := records(3, 3, "started")
	sendError(t, r, batch[:3], await.Timeout, "no such file")
	must(t, os.WriteFile(config.TLS.CAFile, []byte("nothing"), 0o600))
	sendError(t, r, batch[:3], await.Timeout, "has no certificate")
	other, _ := identity(t, filepath.Join(dir, "other"))
	must(t, os.Rename(other, config.TLS.CAFile))
	sendError(t, r, batch[:3], await.Timeout, "unknown authority")
	must(t, os.Link(serverCert, config.TLS.CAFile+".new"))
	must(t, os.Rename(config.TLS.CAFile+".new", config.TLS.CAFile))
	sendError(t, r, batch[:3], await.Timeout, "tls")
	config.TLS.CertFile, config.TLS.KeyFile = clientCert, clientKey
	send(t, r, batch[:3])

	// All certificates change, and the server is restarted.
	config.TLS.CAFile = serverCert
	identity(t, filepath.Join(dir, "server"))
	identity(t, filepath.Join(dir, "client"))
	s.restart(t)
	must(t, await.Success(t.Context(), await.Timeout, func() error { _, err := r.Send(t.Context(), batch[3:]); return err }))
	stored(t, s.stream(t, nil, files()), batch)
}

// user returns the content of a credentials file.
func user(t *testing.T, account nkeys.KeyPair) []byte {
	t.Helper()
	key, err := nkeys.CreateUser()
	must(t, err)
	public, err := key.PublicKey()
	must(t, err)
	token, err := jwt.NewUserClaims(public).Encode(account)
	must(t, err)
	seed, err := key.Seed()
	must(t, err)
	file, err := jwt.FormatUserConfig(token, seed)
	must(t, err)
	return file
}

func newAccount(t *testing.T, operator nkeys.KeyPair, limits jwt.JetStreamLimits) (key nkeys.KeyPair, id, token string) {
	t.Helper()
	key, err := nkeys.CreateAccount()
	must(t, err)
	id, err = key.PublicKey()
	must(t, err)
	claims := jwt.NewAccountClaims(id)
	claims.Limits.JetStreamLimits = limits
	token, err = claims.Encode(operator)
	must(t, err)
	return key, id, token
}

func TestCredentialsFileIsReadAgain(t *testing.T) {
	operator, err := nkeys.CreateOperator()
	must(t, err)
	operatorID, err := operator.PublicKey()
	must(t, err)
	operatorToken, err := jwt.NewOperatorClaims(operatorID).Encode(operator)
	must(t, err)
	account, accountID, accountToken := newAccount(t, operator, jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1})
	_, systemID, systemToken := newAccount(t, operator, jwt.JetStreamLimits{})
	s := startServer(t, withJetStream+fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
		operatorToken, systemID, systemID, systemToken, accountID, accountToken))
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin")
	must(t, os.WriteFile(admin, user(t, account), 0o600))
	stream := s.stream(t, nil, nats.UserCredentials(admin))

	r := newReceiver(t, v1alpha1.JetStream{URL: s.url(), CredentialsFile: filepath.Join(dir, "credentials")})
	batch := records(3, 1, "started")
	sendError(t, r, batch, await.Timeout, "no such file")
	foreign, err := nkeys.CreateAccount()
	must(t, err)
	must(t, os.WriteFile(r.config.CredentialsFile, user(t, foreign), 0o600))
	sendError(t, r, batch, await.Timeout, "Authorization Violation")
	must(t, os.WriteFile(r.config.CredentialsFile, user(t, account), 0o600))
	send(t, r, batch)
	stored(t, stream, batch)
}

// The server answers none of these with an acknowledgement, so the deadline alone would tell.
func TestMissingPermissionIsNamed(t *testing.T) {
	for denied, want := range map[string]string{
		`publish: { deny: "kubernetes.>" }`: "Permissions Violation for Publish",
		`subscribe: { deny: "_INBOX.>" }`:   "Permissions Violation for Subscription",
	} {
		s := startServer(t, withJetStream+fmt.Sprintf("authorization { users: [{ user: eventd, password: secret, permissions: { %s } }] }\n", denied))
		url := "nats://eventd:secret@" + s.address
		sendError(t, newReceiver(t, v1alpha1.JetStream{URL: url}), records(3, 1, "started"), await.Timeout, want)
		wrong := newReceiver(t, v1alpha1.JetStream{URL: "nats://eventd:wrong@" + s.address})
		if _, err := wrong.Send(t.Context(), records(1, 1, "")); err == nil || strings.Contains(err.Error(), ":wrong") {
			t.Errorf("with another password: %v", err)
		}
	}
}
