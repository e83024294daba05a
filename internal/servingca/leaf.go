package servingca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	mathrand "math/rand/v2"
	"time"

	"k8s.io/klog/v2"
)

// leaf is a serving certificate. Its key is in memory only.
type leaf struct {
	certificate *tls.Certificate
	issuer      *x509.Certificate
	renewAt     time.Time
}

// issue makes a serving certificate for DNS names. It is valid no longer than its CA.
func issue(a *authority, names []string, now time.Time, times Times) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := now.Add(times.LeafLife)
	if a.certificate.NotAfter.Before(end) {
		end = a.certificate.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(),
		Subject:      pkix.Name{Organization: []string{organization}, CommonName: "eventd"},
		DNSNames:     names,
		NotBefore:    now.Add(-times.Backdate),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &leaf{
		certificate: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed},
		issuer:      a.certificate,
		renewAt:     now.Add(times.LeafRenewAfter - mathrand.N(times.LeafRenewAfter/10+1)),
	}, nil
}

// renew issues a certificate for this replica if it needs one.
func (m *Manager) renew(ctx context.Context) {
	now := m.clock.now()
	signer, old := m.last.signer(now), m.leaf.Load()
	if !m.last.needsLeaf(now, old, signer) {
		return
	}
	l, err := issue(signer, m.options.DNSNames, now, m.options.Times)
	if err != nil {
		_ = m.fail(ctx, failedIssue, err)
		return
	}
	m.leaf.Store(l)
	m.metrics.issued.Inc()
	setExpiry(m.metrics.leafExpires, l.certificate.Leaf)
	klog.FromContext(ctx).Info("Issued a serving certificate", "expires", l.certificate.Leaf.NotAfter, "issuer", l.issuer.Subject.CommonName)
}
