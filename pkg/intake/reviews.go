package intake

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/pkg/occurrence"
)

// How many reviews are sent to the apiserver. Known and unknown callers have half each
// of the 200 TokenReviews per second that components with delegated authentication allow
// themselves.
const (
	tokenReviewRate, tokenReviewBurst = 100, 200
	accessReviewRate                  = 200
	accessReviewBurst                 = 400
	// reviewsAtOnce is how many reviews of a kind are under way.
	reviewsAtOnce = 64
)

// errReviews is that a caller may not cause another review now.
var errReviews = errors.New("too many reviews are asked for")

// reviews bounds what the apiserver is asked, and how much each flow may have it
// asked: all that wait take turns. It is safe for use by many goroutines.
type reviews struct {
	turns *seats // to wait for the rate
	rate  *rate.Limiter
	calls *seats
}

func newReviews(name string, perSecond float64, burst, waiting int) (*reviews, error) {
	turns, err := newSeats(name+"-rate", 1, waiting, nil)
	if err != nil {
		return nil, err
	}
	calls, err := newSeats(name, reviewsAtOnce, waiting, nil)
	if err != nil {
		return nil, err
	}
	return &reviews{turns: turns, rate: rate.NewLimiter(rate.Limit(perSecond), burst), calls: calls}, nil
}

// run has a review made when it is its turn. An error is errReviews, and there was
// no review.
func (r *reviews) run(ctx context.Context, f flow, review func()) error {
	allowed := false
	if !r.turns.run(ctx, f, func() { allowed = r.rate.Wait(ctx) == nil }) || !allowed {
		return errReviews
	}
	if !r.calls.run(ctx, f, review) {
		return errReviews
	}
	return nil
}

// callers knows who has been accepted, and has the apiserver asked who the others
// are. It is safe for use by many goroutines.
type callers struct {
	hasher   hasher
	ttl      time.Duration // of a review that the authenticator keeps
	known    *knownCredentials
	rejected *rejectedCredentials
	asking   singleflight.Group // by credential

	ofKnown, ofStrangers *reviews

	// issuer and authn verify locally what is not known. ownName is the user that other
	// replicas have too, "" if that is not known; it is nil in a process without any.
	issuer  *Issuer
	authn   authenticator.Request
	ownName func() string
}

func newCallers(ttl time.Duration, inFlight int) (*callers, error) {
	ofKnown, err := newReviews("known", tokenReviewRate, tokenReviewBurst, inFlight)
	if err != nil {
		return nil, err
	}
	ofStrangers, err := newReviews("strangers", tokenReviewRate, tokenReviewBurst, inFlight)
	if err != nil {
		return nil, err
	}
	return &callers{
		hasher: newHasher(), ttl: ttl,
		known: newKnownCredentials(maxKnown), rejected: newRejectedCredentials(),
		ofKnown: ofKnown, ofStrangers: ofStrangers,
	}, nil
}

// around returns an authenticator that does not have the apiserver asked more by
// another one than its callers may have it asked. Certificates are verified without
// asking anybody, and who was accepted a moment ago is not asked about.
func (c *callers) around(authn authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		presented := callOf(req.Context()).credential
		_, accepted, known := c.known.get(presented)
		fresh := known && time.Since(accepted) < c.ttl
		switch {
		case fresh:
			return authn.AuthenticateRequest(req)
		case bearerToken(req) == "":
			return c.verify(req, presented, authn)
		case c.ttl <= 0:
			r := c.ask(req, presented, authn)
			return r.response, r.ok, r.err
		}
		return c.review(req, presented, authn)
	})
}

func (c *callers) verify(req *http.Request, presented credential, authn authenticator.Request) (*authenticator.Response, bool, error) {
	begun := time.Now()
	response, ok, err := authn.AuthenticateRequest(req)
	if ok && err == nil {
		c.known.accept(presented, tenantOf(req, response.User), begun)
	}
	return response, ok, err
}

// reviewed is what an authenticator has said to the request that it was asked about.
type reviewed struct {
	of       *http.Request
	response *authenticator.Response
	ok       bool
	err      error
	panicked any
}

// review asks once at a time about the same credentials. Only whether they are good
// is shared: who somebody is may depend on the rest of the request.
func (c *callers) review(req *http.Request, presented credential, authn authenticator.Request) (*authenticator.Response, bool, error) {
	answer := c.asking.DoChan(string(presented[:]), func() (any, error) { return c.ask(req, presented, authn), nil })
	select {
	case shared := <-answer:
		r := shared.Val.(reviewed)
		if r.panicked != nil {
			panic(r.panicked)
		}
		if good := r.ok && r.err == nil || errors.Is(r.err, errAssertion); r.of != req && good {
			return authn.AuthenticateRequest(req)
		}
		return r.response, r.ok, r.err
	case <-req.Context().Done():
		return nil, false, context.Cause(req.Context())
	}
}

// ask outlives its request, as the question does that the authenticator asks.
func (c *callers) ask(req *http.Request, presented credential, authn authenticator.Request) (r reviewed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), sharedReviewTimeout)
	defer cancel()
	defer func() { r.panicked = recover() }()
	from, f := c.ofStrangers, flowOfAddress(req)
	if tenant, ok := c.tenant(req.Context()); ok {
		from, f = c.ofKnown, flow{Tenant: tenant}
	}
	r.of = req
	var begun time.Time
	err := from.run(ctx, f, func() {
		begun = time.Now()
		r.response, r.ok, r.err = authn.AuthenticateRequest(req.Clone(ctx))
	})
	if err != nil {
		r.err = err
		return r
	}
	c.remember(req, presented, r, begun)
	return r
}

func (c *callers) remember(req *http.Request, presented credential, r reviewed, begun time.Time) {
	switch {
	case r.err == nil && r.ok:
		c.known.accept(presented, tenantOf(req, r.response.User), begun)
	case errors.Is(r.err, errAssertion):
	case r.err == nil || !undecided(r.err):
		c.known.forget(presented)
		c.rejected.add(presented)
	}
}

// tenant returns whose the credentials of a request are: by the last review that accepted
// them, or else by what was verified locally. It is false for unknown callers.
func (c *callers) tenant(ctx context.Context) (string, bool) {
	call := callOf(ctx)
	if tenant, _, ok := c.known.get(call.credential); ok {
		return tenant, true
	}
	return call.verified, call.verified != ""
}

// verified returns the tenant that unknown credentials verify as, "" if they do not:
// by the signature of a token, or as a client certificate is authenticated. They are
// reviewed as all others.
func (c *callers) verified(req *http.Request, presented credential) (tenant string) {
	if _, _, known := c.known.get(presented); known {
		return ""
	}
	token := bearerToken(req)
	if token == "" {
		return c.certificate(req)
	}
	subject, ok := c.issuer.subject(token)
	switch {
	case !ok:
		return ""
	case PassedOn(req) && c.ownName != nil && subject == c.ownName():
		return replicas
	}
	return occurrence.TenantOf(subject)
}

// certificate is verified for a request without a token. Headers that assert a user are
// for replicas, which have one.
func (c *callers) certificate(req *http.Request) (tenant string) {
	if PassedOn(req) || c.authn == nil {
		return ""
	}
	// The authenticator removes headers of a front proxy.
	response, ok, err := notAnonymous(c.authn).AuthenticateRequest(req.Clone(req.Context()))
	if !ok || err != nil {
		return ""
	}
	return tenantOf(req, response.User)
}

// Tenants of credentials that speak for many users: those of other replicas, and the
// certificate of a front proxy.
const (
	replicas   = "\x00replicas"
	frontProxy = "\x00front-proxy"
)

// tenantOf is whose credentials a request has. A certificate that authenticates
// somebody else than its subject belongs to a front proxy.
func tenantOf(req *http.Request, u user.Info) string {
	switch {
	case PassedOn(req):
		return replicas
	case bearerToken(req) == "" && certified(req) != "" && certified(req) != u.GetName():
		return frontProxy
	}
	return occurrence.TenantOf(u.GetName())
}

// certified is the common name of a request's client certificate.
func certified(req *http.Request) string {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return ""
	}
	return req.TLS.PeerCertificates[0].Subject.CommonName
}

// notAnonymous is an authenticator for which nobody is anonymous.
func notAnonymous(authn authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authn.AuthenticateRequest(req)
		if ok && err == nil && (response.User.GetName() == user.Anonymous || slices.Contains(response.User.GetGroups(), user.AllUnauthenticated)) {
			return nil, false, nil
		}
		return response, ok, err
	})
}
