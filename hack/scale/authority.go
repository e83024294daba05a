package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// authority is the CA of client certificates. All clients have one key, so that 15,000 of them cost a
// signature each; to a server that makes no difference.
type authority struct {
	key  *ecdsa.PrivateKey // of the CA and of its clients
	ca   *x509.Certificate
	next int64 // serial number
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	der, err := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "simulated"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	if err != nil {
		return nil, err
	}
	a.ca, err = x509.ParseCertificate(der)
	return a, err
}

// sign signs with the key of a parent, or of the certificate itself if that is nil.
func (a *authority) sign(c, parent *x509.Certificate) ([]byte, error) {
	a.next++
	c.SerialNumber = big.NewInt(a.next)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(24*time.Hour)
	if parent == nil {
		parent = c
	}
	return x509.CreateCertificate(rand.Reader, c, parent, &a.key.PublicKey, a.key)
}

// pem is the certificate of the CA.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.ca.Raw})
}

// issue issues the certificate of a user in groups, as a kubelet has one.
func (a *authority) issue(user string, groups ...string) (tls.Certificate, error) {
	der, err := a.sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: user, Organization: groups},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.ca)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, err
}

// pemOf is a certificate and its key for a rest.Config.
func (a *authority) pemOf(c tls.Certificate) (cert, key []byte, err error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}
