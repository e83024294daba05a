package servingca

import (
	"bytes"
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
	"slices"
	"strings"
	"time"
)

// organization and namePrefix are in the subject of every CA that this package makes.
const (
	organization = "eventd"
	namePrefix   = "eventd serving CA "
)

const (
	certificateType = "CERTIFICATE"
	privateKeyType  = "PRIVATE KEY"
)

// authority is a CA with its key.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// newAuthority makes a CA. Its name is unique: TLS libraries find the CA of a certificate by its name.
func newAuthority(now time.Time, times Times) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serialNumber(),
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: namePrefix + strings.ToLower(rand.Text()[:12])},
		NotBefore:             now.Add(-times.Backdate),
		NotAfter:              now.Add(times.CALife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key}, err
}

// serialNumber returns a random number of 127 bits: it must be positive, in at most 20 bytes.
func serialNumber() *big.Int {
	number := make([]byte, 16)
	_, _ = rand.Read(number) // it never fails
	number[0] = number[0]&0x7f | 1
	return new(big.Int).SetBytes(number)
}

// parseAuthority reads a CA and its key. It returns the certificate also if only the key is wrong.
func parseAuthority(certificatePEM, keyPEM []byte) (*authority, *x509.Certificate, error) {
	certificates, err := parseBundle(certificatePEM)
	switch {
	case err != nil:
		return nil, nil, err
	case len(certificates) != 1:
		return nil, nil, fmt.Errorf("%d certificates of a CA made by eventd, instead of one", len(certificates))
	}
	certificate := certificates[0]
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, certificate, errors.New("no private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, certificate, errors.New("the private key is not readable") // its error may have parts of the key
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, certificate, errors.New("the private key is not that of the certificate")
	}
	return &authority{certificate, key}, certificate, nil
}

// encode returns the certificate and the key as PEM.
func (a *authority) encode() (certificate, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, nil, err
	}
	return encodeBundle([]*x509.Certificate{a.certificate}), pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: der}), nil
}

// maxBundle bounds what is read of an object that somebody has edited, and maxBlocks what is looked at:
// an object has place for thousands, and each costs a verification.
const (
	maxBundle = 16
	maxBlocks = 4 * maxBundle
)

// parseBundle returns the CAs in PEM that this package has made. Others are left out.
func parseBundle(data []byte) (bundle []*x509.Certificate, err error) {
	for blocks := 0; len(bundle) < maxBundle; blocks++ {
		if blocks == maxBlocks {
			return bundle, errors.New("there are too many certificates")
		}
		block, rest := pem.Decode(data)
		if block == nil {
			if len(bytes.TrimSpace(data)) > 0 {
				return bundle, errors.New("there is something else than certificates in PEM")
			}
			return bundle, err
		}
		data = rest
		certificate, parseErr := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != certificateType || parseErr != nil:
			err = errors.New("a certificate is not readable")
		case isOwn(certificate):
			bundle = with(bundle, certificate)
		}
	}
	return bundle, err
}

// isOwn reports whether a certificate is a CA as this package makes them.
func isOwn(c *x509.Certificate) bool {
	key, ok := c.PublicKey.(*ecdsa.PublicKey)
	return ok && key.Curve == elliptic.P256() && c.IsCA && c.BasicConstraintsValid && c.KeyUsage == x509.KeyUsageCertSign &&
		slices.Equal(c.Subject.Organization, []string{organization}) && strings.HasPrefix(c.Subject.CommonName, namePrefix) &&
		c.CheckSignatureFrom(c) == nil
}

func encodeBundle(bundle []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range bundle {
		_ = pem.Encode(&out, &pem.Block{Type: certificateType, Bytes: c.Raw}) // to memory
	}
	return out.Bytes()
}

// with returns a bundle and these certificates, each once.
func with(bundle []*x509.Certificate, more ...*x509.Certificate) []*x509.Certificate {
	for _, c := range more {
		if c != nil && !contains(bundle, c) {
			bundle = append(slices.Clip(bundle), c)
		}
	}
	return bundle
}

func contains(bundle []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(bundle, c.Equal)
}
