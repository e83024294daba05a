package servingca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

// resembling returns a CA as PEM that differs from those of this package in what change does.
func resembling(t *testing.T, curve elliptic.Curve, change func(*x509.Certificate)) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := *mustMake(t, time.Now()).certificate
	template.PublicKey, template.RawSubject, template.AuthorityKeyId, template.SubjectKeyId = nil, nil, nil, nil
	template.SignatureAlgorithm = x509.UnknownSignatureAlgorithm
	change(&template)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

// Each is a CA that some program may have made, and put where eventd reads.
func TestOnlyCAsOfThisPackageAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		curve  elliptic.Curve
		change func(*x509.Certificate)
		want   int
	}{
		"as this package makes it": {elliptic.P256(), func(*x509.Certificate) {}, 1},
		"another curve":            {elliptic.P384(), func(*x509.Certificate) {}, 0},
		"another organization":     {elliptic.P256(), func(c *x509.Certificate) { c.Subject.Organization = []string{"somebody"} }, 0},
		"another name":             {elliptic.P256(), func(c *x509.Certificate) { c.Subject.CommonName = "somebody's CA" }, 0},
		"it also signs lists":      {elliptic.P256(), func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, 0},
		"it is no CA": {elliptic.P256(), func(c *x509.Certificate) {
			c.IsCA, c.MaxPathLen, c.MaxPathLenZero = false, 0, false
		}, 0},
	} {
		bundle, err := parseBundle(resembling(t, c.curve, c.change))
		if err != nil || len(bundle) != c.want {
			t.Errorf("%s: %d are read (%v)", name, len(bundle), err)
		}
	}
	// One that another CA has signed is trusted by whoever trusts that.
	a, b := mustMake(t, time.Now()), mustMake(t, time.Now())
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, b.certificate, a.key.Public(), b.key)
	if err != nil {
		t.Fatal(err)
	}
	if bundle, err := parseBundle(pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})); err != nil || len(bundle) > 0 {
		t.Errorf("signed by another one: it is read (%v)", err)
	}
}

func TestBundleIsBounded(t *testing.T) {
	var all []*x509.Certificate
	for range maxBundle + 1 {
		all = append(all, mustMake(t, time.Now()).certificate)
	}
	if maxBundle < 8 { // there may be several of lost Secrets, beside those of a rotation
		t.Errorf("only %d are read", maxBundle)
	}
	for _, n := range []int{maxBundle, maxBundle + 1} {
		if bundle, _ := parseBundle(encodeBundle(all[:n])); len(bundle) != maxBundle {
			t.Errorf("%d of %d are read", len(bundle), n)
		}
	}
	if twice, err := parseBundle(encodeBundle([]*x509.Certificate{all[0], all[0]})); err != nil || len(twice) != 1 {
		t.Errorf("one that is there twice is read %d times (%v)", len(twice), err)
	}
}

// Whoever trusts a CA trusts no more than the certificates that it signs itself.
func TestCASignsServingCertificatesOnly(t *testing.T) {
	times, now := DefaultTimes(), time.Now().Truncate(time.Second)
	c, other := mustMake(t, now).certificate, mustMake(t, now).certificate
	if !c.IsCA || c.KeyUsage != x509.KeyUsageCertSign || c.MaxPathLen != 0 || !c.MaxPathLenZero {
		t.Errorf("CA %t, usage %b, path length %d (%t)", c.IsCA, c.KeyUsage, c.MaxPathLen, c.MaxPathLenZero)
	}
	if !c.NotBefore.Equal(now.Add(-times.Backdate)) || !c.NotAfter.Equal(now.Add(times.CALife)) {
		t.Errorf("it is valid from %s until %s", c.NotBefore, c.NotAfter)
	}
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() > 127 || c.SerialNumber.Cmp(other.SerialNumber) == 0 ||
		c.Subject.CommonName == other.Subject.CommonName {
		t.Errorf("two of them are %s, %v and %s, %v", c.Subject, c.SerialNumber, other.Subject, other.SerialNumber)
	}
}

// The errors of the library may quote what it has read.
func TestErrorsHaveNoPartOfTheKey(t *testing.T) {
	certificate, _, err := mustMake(t, time.Now()).encode()
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalECPrivateKey(mustMake(t, time.Now()).key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	s := decode(map[string][]byte{
		currentCertificateKey: certificate, currentKeyKey: pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: key}),
	})
	if s.problem == nil || !strings.HasSuffix(s.problem.Error(), ": the private key is not readable") {
		t.Errorf("the error is %v", s.problem)
	}
}
