package intake

import (
	"crypto/x509"
	"net/http"
	"reflect"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// verification is that a client certificate was verified. To verify one takes longer than all the rest of a
// report, and a kubelet presents the same one with each. There are no revocations, so a verification holds until
// the bundle of CAs is another one, or a certificate of the chain expires.
type verification struct {
	roots *x509.CertPool // nil: nothing was verified
	until int64          // Unix time in ns
}

// directHeaders are the headers that clients send. Any other one may be that of a front proxy: its names are configured.
var directHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Audit-Id": true, "Authorization": true,
	"Content-Length": true, "Content-Type": true, "User-Agent": true,
}

// hasNoProxyHeader reports whether a request certainly has no header of a front proxy.
func hasNoProxyHeader(req *http.Request) bool {
	for name := range req.Header {
		if !directHeaders[name] {
			return false
		}
	}
	return true
}

// certificates verifies certificates. Requests with intermediate certificates are verified each time.
type certificates struct {
	// options returns the CAs, and false if there are none. It is nil if they are not known: then the
	// authenticator verifies each request.
	options x509request.VerifyOptionFunc
}

// subject returns the user of a verified certificate, as the authenticator does.
var subject = group.NewAuthenticatedGroupAdder(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
	return x509request.CommonNameUserConversion.User(req.TLS.PeerCertificates)
}))

// verify returns the verification of a request whose certificate, and no token, has authenticated a user. It holds
// for later requests only if the user is the subject of the certificate: not if a front proxy passes one on.
func (c *certificates) verify(req *http.Request, u user.Info) (v verification) {
	if c.options == nil || req.TLS == nil || len(req.TLS.PeerCertificates) != 1 {
		return v
	}
	options, ok := c.options()
	if !ok {
		return v
	}
	if response, ok, err := subject.AuthenticateRequest(req); err != nil || !ok || !reflect.DeepEqual(response.User, u) {
		return v
	}
	chains, err := req.TLS.PeerCertificates[0].Verify(options)
	if err != nil {
		return v
	}
	until := chains[0][0].NotAfter
	for _, certificate := range chains[0] {
		if certificate.NotAfter.Before(until) {
			until = certificate.NotAfter
		}
	}
	return verification{options.Roots, until.UnixNano()}
}

// holds reports whether the certificate of a request needs no other verification. It must be the only one of the
// request.
func (c *certificates) holds(v verification, req *http.Request) bool {
	if v.roots == nil || len(req.TLS.PeerCertificates) != 1 || time.Now().UnixNano() > v.until {
		return false
	}
	options, ok := c.options()
	return ok && options.Roots == v.roots
}
