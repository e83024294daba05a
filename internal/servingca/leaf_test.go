package servingca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"
	"time"
)

// foreignCA returns a CA of somebody else as PEM.
func foreignCA(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: "somebody's CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

// verify returns an error if a client that trusts a bundle does not accept a certificate.
func verify(l *leaf, bundle []*x509.Certificate, name string, at time.Time) error {
	roots := x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	_, err := l.certificate.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func TestCertificateIsValidForClocksThatAreADayOff(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	for _, issuer := range []time.Duration{-day, 0, day} {
		a := mustMake(t, now.Add(issuer))
		l, err := issue(a, []string{"eventd.kube-system.svc"}, now.Add(issuer), times)
		if err != nil {
			t.Fatal(err)
		}
		for _, client := range []time.Duration{-day + time.Minute, 0, day} {
			for _, age := range []time.Duration{0, times.LeafRenewAfter} {
				if err := verify(l, []*x509.Certificate{a.certificate}, "eventd.kube-system.svc", now.Add(client+age)); err != nil {
					t.Errorf("issuer %s, client %s, %s old: %v", issuer, client, age, err)
				}
			}
		}
		if life := l.certificate.Leaf.NotAfter.Sub(l.certificate.Leaf.NotBefore); life > 7*day {
			t.Errorf("it is valid for %s", life)
		}
		if earliest := now.Add(issuer + times.LeafRenewAfter*9/10); l.renewAt.Before(earliest) || l.renewAt.After(now.Add(issuer+times.LeafRenewAfter)) {
			t.Errorf("it is renewed at %s", l.renewAt)
		}
	}
}

func TestCertificateEndsWithItsCA(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	a := mustMake(t, now)
	l, err := issue(a, []string{"eventd"}, a.certificate.NotAfter.Add(-time.Hour), times)
	if err != nil || l.certificate.Leaf.NotAfter.After(a.certificate.NotAfter) {
		t.Errorf("it ends at %s, and its CA at %s (%v)", l.certificate.Leaf.NotAfter, a.certificate.NotAfter, err)
	}
}

// It is good for nothing but to serve under these names, and its key is its own.
func TestCertificateIsForServingOnly(t *testing.T) {
	times, now := DefaultTimes(), time.Now().Truncate(time.Second)
	a, names := mustMake(t, now), []string{"eventd", "eventd.kube-system.svc"}
	l, err := issue(a, names, now, times)
	if err != nil {
		t.Fatal(err)
	}
	c := l.certificate.Leaf
	if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("CA %t, usages %b and %v", c.IsCA, c.KeyUsage, c.ExtKeyUsage)
	}
	if !slices.Equal(c.DNSNames, names) || len(c.IPAddresses) > 0 {
		t.Errorf("it is for %v and %v", c.DNSNames, c.IPAddresses)
	}
	if !c.NotBefore.Equal(now.Add(-times.Backdate)) || !c.NotAfter.Equal(now.Add(times.LeafLife)) {
		t.Errorf("it is valid from %s until %s", c.NotBefore, c.NotAfter)
	}
	if key := l.certificate.PrivateKey.(*ecdsa.PrivateKey); !key.PublicKey.Equal(c.PublicKey) || key.PublicKey.Equal(a.key.Public()) {
		t.Error("its key is not its own")
	}
	if times.RetireAfter < times.LeafLife || times.Backdate < 2*day || times.LeafLife < times.LeafRenewAfter+2*day {
		t.Errorf("the default times leave a gap: %+v", times)
	}
}

// Replicas that started together renew at different times.
func TestRenewalsAreSpread(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	a, at := mustMake(t, now), map[time.Time]bool{}
	for range 10 {
		l, err := issue(a, []string{"eventd"}, now, times)
		if err != nil {
			t.Fatal(err)
		}
		if before := now.Add(times.LeafRenewAfter).Sub(l.renewAt); before < 0 || before > times.LeafRenewAfter/10 {
			t.Errorf("it is renewed %s early", before)
		}
		at[l.renewAt] = true
	}
	if len(at) == 1 {
		t.Error("all are renewed at the same time")
	}
}

// Whoever names no server, or another one, gets the certificate that the Lease announces.
func TestCertificateIsForClientsThatNameTheServer(t *testing.T) {
	m := &Manager{}
	hello := func(name string) *tls.Certificate {
		c, err := m.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		return c
	}
	if hello("eventd") != nil {
		t.Error("there is a certificate before one was issued")
	}
	now := time.Now()
	l, err := issue(mustMake(t, now), []string{"eventd", "eventd.kube-system.svc"}, now, DefaultTimes())
	if err != nil {
		t.Fatal(err)
	}
	m.leaf.Store(l)
	for name, want := range map[string]bool{"eventd": true, "Eventd.Kube-System.svc": true, "": false, "other.svc": false} {
		if got := hello(name) == l.certificate; got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
