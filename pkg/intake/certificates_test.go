package intake_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
)

// authority issues client certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate = a.sign(t, template, template)
	return a
}

func (a *authority) sign(t *testing.T, template, parent *x509.Certificate) *x509.Certificate {
	t.Helper()
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, a.key.Public(), a.key))))
}

// client returns a certificate that the authority has signed.
func (a *authority) client(t *testing.T, name string, validFor time.Duration) *x509.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validFor), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate)
}

// verifying is a server whose authenticator verifies certificates by a bundle of CAs.
type verifying struct {
	*server
	roots    *x509.CertPool // nil: there are none
	other    string         // the user that the authenticator makes of any certificate, if it is set
	verified int            // requests that the authenticator has seen
	posted   int
	users    []user.Info // whom the authorizer was asked about
}

func serveVerifying(t *testing.T) *verifying {
	t.Helper()
	v := &verifying{}
	options := func() (x509.VerifyOptions, bool) {
		return x509.VerifyOptions{Roots: v.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, v.roots != nil
	}
	authn := group.NewAuthenticatedGroupAdder(x509request.NewDynamic(options, x509request.CommonNameUserConversion))
	v.server = serve(t, written(), withServer(func(o *intake.ServerOptions) {
		o.ClientCA = options
		o.AccessReviewTTL = -1
		o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			v.verified++
			if name := cmp.Or(req.Header.Get("X-Remote-User"), v.other); name != "" {
				return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
			}
			return authn.AuthenticateRequest(req)
		})
	}), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		v.users = append(v.users, a.GetUser())
		return authorizer.DecisionAllow, "", nil
	}))
	return v
}

func (v *verifying) trusts(authorities ...*authority) {
	v.roots = x509.NewCertPool()
	for _, a := range authorities {
		v.roots.AddCert(a.certificate)
	}
}

// post posts an Event with certificates, and returns the code and how often the authenticator was asked.
func (v *verifying) post(t *testing.T, certificates []*x509.Certificate, headers ...string) (code, verified int) {
	t.Helper()
	before := v.verified
	v.posted++
	// What is no token has none added by the harness, as another header would make the request unusual.
	headers = append([]string{"Authorization", "Basic x"}, headers...)
	req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic(fmt.Sprint("e", v.posted), 1), headers...)
	req.TLS = &tls.ConnectionState{PeerCertificates: certificates}
	return v.Send(req).Code, v.verified - before
}

func (v *verifying) want(t *testing.T, what string, code, verified int, certificates []*x509.Certificate, headers ...string) {
	t.Helper()
	gotCode, got := v.post(t, certificates, headers...)
	if gotCode != code || (got > 0) != (verified > 0) {
		t.Errorf("%s: %d, and the authenticator was asked %d times; want %d and %d", what, gotCode, got, code, verified)
	}
}

// A certificate is verified once for all reports, until a verification could end in another way.
func TestCertificateIsVerifiedAgainWhenItMayBeRefused(t *testing.T) {
	const created, unauthorized = http.StatusCreated, http.StatusUnauthorized
	bubble(t, "the CAs change", func(t *testing.T) {
		v, old, other := serveVerifying(t), newAuthority(t, "old"), newAuthority(t, "other")
		kubelet := []*x509.Certificate{old.client(t, "system:node:a", time.Hour)}
		v.trusts(old)
		v.want(t, "first", created, 1, kubelet)
		v.want(t, "second", created, 0, kubelet)
		equal(t, "the user of the second", v.users[len(v.users)-1], v.users[0])
		equal(t, "the groups", v.users[0].GetGroups(), []string{"system:nodes", user.AllAuthenticated})
		v.trusts(old, other)
		v.want(t, "with new CAs", created, 1, kubelet)
		v.want(t, "with new CAs, second", created, 0, kubelet)
		v.trusts(other)
		v.want(t, "without its CA", unauthorized, 1, kubelet)
		v.trusts(old)
		v.want(t, "with its CA", created, 1, kubelet)
		v.roots = nil
		v.want(t, "without CAs", unauthorized, 1, kubelet)
	})
	bubble(t, "it expires", func(t *testing.T) {
		v, ca := serveVerifying(t), newAuthority(t, "ca")
		kubelet := []*x509.Certificate{ca.client(t, "system:node:a", 5*time.Minute)}
		v.trusts(ca)
		v.want(t, "first", created, 1, kubelet)
		time.Sleep(5*time.Minute - time.Second)
		v.want(t, "just before", created, 0, kubelet)
		time.Sleep(2 * time.Second)
		v.want(t, "just after", unauthorized, 1, kubelet)
	})
	bubble(t, "its CA expires", func(t *testing.T) {
		v, ca := serveVerifying(t), newAuthority(t, "ca")
		kubelet := []*x509.Certificate{ca.client(t, "system:node:a", 1000*time.Hour)}
		v.trusts(ca)
		time.Sleep(100*time.Hour - time.Minute)
		v.want(t, "just before", created, 1, kubelet)
		v.want(t, "just before, again", created, 0, kubelet)
		time.Sleep(2 * time.Minute)
		v.want(t, "just after", unauthorized, 1, kubelet)
	})
}

// What is verified holds for the same certificate only, and for its subject.
func TestVerifiedCertificateHoldsForNothingElse(t *testing.T) {
	const created, unauthorized = http.StatusCreated, http.StatusUnauthorized
	v, ca, untrusted := serveVerifying(t), newAuthority(t, "ca"), newAuthority(t, "ca")
	kubelet := ca.client(t, "system:node:a", time.Hour)
	v.trusts(ca)
	alone := []*x509.Certificate{kubelet}
	v.want(t, "first", created, 1, alone)
	v.want(t, "second", created, 0, alone)
	v.want(t, "another certificate of the same name", unauthorized, 1, []*x509.Certificate{untrusted.client(t, "system:node:a", time.Hour)})
	v.want(t, "another one that is good", created, 1, []*x509.Certificate{ca.client(t, "system:node:b", time.Hour)})
	v.want(t, "the first, with another certificate", created, 1, []*x509.Certificate{kubelet, untrusted.certificate})
	v.want(t, "alone again", created, 1, alone)
	v.want(t, "as a front proxy", created, 1, alone, "X-Remote-User", "jane")
	equal(t, "the user", v.users[len(v.users)-1].GetName(), "jane")
	v.want(t, "as itself again", created, 0, alone)
	equal(t, "the user", v.users[len(v.users)-1].GetName(), "system:node:a")
	v.want(t, "a header that client-go does not send", created, 1, alone, "X-Other", "a")
	v.want(t, "with a token", created, 1, alone, "Authorization", "Bearer t")
}

// A user other than the subject is asked for each time.
func TestCertificateOfAnotherUserIsVerifiedEachTime(t *testing.T) {
	v, ca := serveVerifying(t), newAuthority(t, "ca")
	v.trusts(ca)
	v.other = "jane"
	certificate := []*x509.Certificate{ca.client(t, "system:node:a", time.Hour)}
	v.want(t, "first", http.StatusCreated, 1, certificate)
	v.want(t, "second", http.StatusCreated, 1, certificate)
	equal(t, "the user", v.users[1].GetName(), "jane")
}
