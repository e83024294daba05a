package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// validity is long enough for no kept data directory to outlive it.
const validity = 10 * 365 * 24 * time.Hour

// identity is the folder of the keys and certificates that make a restarted
// control plane the same one to its clients. File names are kubeadm's where
// kubeadm has the file.
type identity struct{ dir string }

func (id identity) cert(name string) string { return filepath.Join(id.dir, name+".crt") }
func (id identity) key(name string) string  { return filepath.Join(id.dir, name+".key") }

// Each CA is trusted for one thing only. With one CA for all, the certificate
// of a front proxy would be an administrator's and the other way round.
const (
	clusterCA    = "ca"
	frontProxyCA = "front-proxy-ca"
	etcdCA       = "etcd-ca"
)

const (
	apiserverCert        = "apiserver"
	adminCert            = "admin"
	frontProxyClientCert = "front-proxy-client"
	etcdServerCert       = "etcd-server"
	etcdClientCert       = "apiserver-etcd-client"
	serviceAccountKey    = "sa"
)

// ensureIdentity returns the identity in dir, and makes it if it is not there.
// It is made aside and moved into place, so that an interrupted start leaves no
// half of an identity.
func ensureIdentity(dir string) (identity, error) {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return identity{dir}, err
	}
	id := identity{dir + ".new"}
	if err := os.RemoveAll(id.dir); err != nil {
		return id, err
	}
	if err := os.MkdirAll(id.dir, 0o700); err != nil {
		return id, err
	}
	if err := id.makeAll(); err != nil {
		return id, err
	}
	return identity{dir}, os.Rename(id.dir, dir)
}

func (id identity) makeAll() error {
	for ca, leaves := range map[string][]leaf{
		clusterCA: {
			{name: apiserverCert, commonName: "kube-apiserver", server: true},
			{name: adminCert, commonName: "kubernetes-admin", organization: "system:masters", client: true},
		},
		frontProxyCA: {
			{name: frontProxyClientCert, commonName: "front-proxy-client", client: true},
		},
		etcdCA: {
			// etcd is a client of itself: its gateway and its peers.
			{name: etcdServerCert, commonName: "etcd", server: true, client: true},
			{name: etcdClientCert, commonName: "kube-apiserver", client: true},
		},
	} {
		signer, err := id.makeCA(ca)
		if err != nil {
			return fmt.Errorf("%s: %w", ca, err)
		}
		for _, l := range leaves {
			if err := id.makeLeaf(signer, l); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	_, err := id.makeKey(serviceAccountKey)
	return err
}

// leaf is one certificate to be signed.
type leaf struct {
	name, commonName, organization string
	server, client                 bool
}

// authority is a CA that can sign.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (id identity) makeCA(name string) (authority, error) {
	key, err := id.makeKey(name)
	if err != nil {
		return authority{}, err
	}
	tmpl := template("controlplane-"+name, "")
	tmpl.IsCA = true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, err := id.sign(name, tmpl, authority{tmpl, key}, key.Public())
	return authority{cert, key}, err
}

func (id identity) makeLeaf(ca authority, l leaf) error {
	key, err := id.makeKey(l.name)
	if err != nil {
		return err
	}
	tmpl := template(l.commonName, l.organization)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	if l.client {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if l.server {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		tmpl.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	}
	_, err = id.sign(l.name, tmpl, ca, key.Public())
	return err
}

func template(commonName, organization string) *x509.Certificate {
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	now := time.Now()
	return &x509.Certificate{
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour), // clocks of containers and their hosts differ
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}
}

func (id identity) sign(name string, tmpl *x509.Certificate, ca authority, public crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, public, ca.key)
	if err != nil {
		return nil, err
	}
	if err := writePEM(id.cert(name), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (id identity) makeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(id.key(name), "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// adminConfig is the configuration of a client that may do everything.
func (id identity) adminConfig(server string) (*rest.Config, error) {
	config := &rest.Config{Host: server, QPS: -1}
	for file, data := range map[string]*[]byte{
		id.cert(clusterCA): &config.CAData,
		id.cert(adminCert): &config.CertData,
		id.key(adminCert):  &config.KeyData,
	} {
		var err error
		if *data, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return config, nil
}
