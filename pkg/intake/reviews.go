package intake

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/fairqueue"
)

// DefaultAccessReviewQPS is twice what components with delegated authorization allow themselves: a leader reviews the
// callers of all replicas.
const DefaultAccessReviewQPS = 400

// reviewLimit is how many reviews are sent to the apiserver.
type reviewLimit struct {
	perSecond float64
	burst     int
}

// tokenReviews is the limit of known and unknown callers each: half of the 200 TokenReviews per second that components
// with delegated authentication allow themselves.
var tokenReviews = reviewLimit{100, 200}

// accessReviews returns a limit of SubjectAccessReviews, which may be infinite.
func accessReviews(qps float64) reviewLimit {
	return reviewLimit{qps, max(1, int(min(2*qps, math.MaxInt32)))}
}

// reviewsAtOnce limits the concurrent reviews of a kind.
const reviewsAtOnce = 64

// errReviews is the error of a review that was not made, because too many are waiting.
var errReviews = errors.New("too many reviews are waiting")

// reviews limits the rate and the concurrency of reviews, fairly between flows. It is
// safe for use by many goroutines.
type reviews struct {
	queue *fairqueue.Seats // one seat, to wait for the rate limiter
	rate  *rate.Limiter
	calls *fairqueue.Seats
}

func newReviews(name string, limit reviewLimit, waiting int) (*reviews, error) {
	queue, err := fairqueue.New(name+"-rate", 1, waiting, nil)
	if err != nil {
		return nil, err
	}
	calls, err := fairqueue.New(name, reviewsAtOnce, waiting, nil)
	if err != nil {
		return nil, err
	}
	return &reviews{queue: queue, rate: rate.NewLimiter(rate.Limit(limit.perSecond), limit.burst), calls: calls}, nil
}

// run calls review when its flow is next. If the error is errReviews, it does not.
func (r *reviews) run(ctx context.Context, f flow, review func()) error {
	allowed := false
	if !r.queue.Run(ctx, f, func() { allowed = r.rate.Wait(ctx) == nil }) || !allowed {
		return errReviews
	}
	if !r.calls.Run(ctx, f, review) {
		return errReviews
	}
	return nil
}

// callers keeps which credentials were accepted and rejected, and limits the reviews of
// the others. It is safe for use by many goroutines.
type callers struct {
	hasher   hasher
	ttl      time.Duration // of a review in the cache of the authenticator
	known    *knownCredentials
	rejected *rejectedCredentials
	shared   singleflight.Group // by credential

	ofKnown, ofUnknown *reviews

	authn        authenticator.Request // of certificates that are not known
	certificates certificates
}

func newCallers(ttl time.Duration, inFlight int) (*callers, error) {
	ofKnown, err := newReviews("known", tokenReviews, inFlight)
	if err != nil {
		return nil, err
	}
	ofUnknown, err := newReviews("unknown", tokenReviews, inFlight)
	if err != nil {
		return nil, err
	}
	return &callers{
		hasher: newHasher(), ttl: ttl,
		known: newKnownCredentials(maxKnown), rejected: newRejectedCredentials(),
		ofKnown: ofKnown, ofUnknown: ofUnknown,
	}, nil
}

// limit returns an authenticator that limits the reviews of another one. There are none
// for certificates, nor for tokens with a cached review.
func (c *callers) limit(authn authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		presented := callOf(req.Context()).credential
		if bearerToken(req) == "" {
			return c.verify(req, presented, authn)
		}
		known, ok := c.known.get(presented)
		switch {
		case ok && time.Since(known.accepted) < c.ttl:
			return authn.AuthenticateRequest(req)
		case c.ttl <= 0:
			r := c.newReview(req, presented, authn)
			return r.response, r.ok, r.err
		}
		return c.review(req, presented, authn)
	})
}

// verify authenticates a certificate. Without a header of a front proxy, it is the subject of the certificate who
// sends a request.
func (c *callers) verify(req *http.Request, presented credential, authn authenticator.Request) (*authenticator.Response, bool, error) {
	direct := hasNoProxyHeader(req)
	known, _ := c.known.get(presented)
	if direct && c.certificates.holds(known.verification, req) {
		return subject.AuthenticateRequest(req)
	}
	begun := time.Now()
	response, ok, err := authn.AuthenticateRequest(req)
	if ok && err == nil {
		known.user, known.accepted = holderOf(req, response.User), begun
		if direct {
			known.verification = c.certificates.verify(req, response.User)
		}
		c.known.add(presented, known)
	}
	return response, ok, err
}

// reviewed is the result of an authenticator for a request.
type reviewed struct {
	of       *http.Request
	response *authenticator.Response
	ok       bool
	err      error
	panicked any
}

// review makes one review at a time for the same credentials. Other requests share only
// whether they are accepted, because the user may depend on the rest of the request.
func (c *callers) review(req *http.Request, presented credential, authn authenticator.Request) (*authenticator.Response, bool, error) {
	result := c.shared.DoChan(string(presented[:]), func() (any, error) { return c.newReview(req, presented, authn), nil })
	select {
	case shared := <-result:
		r := shared.Val.(reviewed)
		if r.panicked != nil {
			panic(r.panicked)
		}
		if accepted := r.ok && r.err == nil || errors.Is(r.err, errAssertion); r.of != req && accepted {
			return authn.AuthenticateRequest(req)
		}
		return r.response, r.ok, r.err
	case <-req.Context().Done():
		return nil, false, context.Cause(req.Context())
	}
}

// newReview makes a review. It outlives its request, because other ones share it.
func (c *callers) newReview(req *http.Request, presented credential, authn authenticator.Request) (r reviewed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), sharedReviewTimeout)
	defer cancel()
	defer func() { r.panicked = recover() }()
	from, f := c.ofUnknown, flowOfAddress(req)
	if known, ok := c.holder(req.Context()); ok {
		from, f = c.ofKnown, callOf(req.Context()).flowOf(known.user, "")
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
		c.known.add(presented, knownCredential{user: holderOf(req, r.response.User), accepted: begun})
	case errors.Is(r.err, errAssertion):
	case r.err == nil || !Undecided(r.err):
		c.known.remove(presented)
		c.rejected.add(presented)
	}
}

// holder returns what is known of the credentials of a request: by the last review that
// accepted them, otherwise by their certificate. It returns false for unknown callers.
func (c *callers) holder(ctx context.Context) (knownCredential, bool) {
	call := callOf(ctx)
	if known, ok := c.known.get(call.credential); ok {
		return known, true
	}
	return knownCredential{user: call.verified}, call.verified != ""
}

// verified returns the user that an unknown client certificate verifies as, "" if it does not, or the request has a
// token. It is still reviewed as all others. Requests that assert a user are ignored, since replicas have a token.
func (c *callers) verified(req *http.Request, presented credential) (user string) {
	if _, known := c.known.get(presented); known || bearerToken(req) != "" || Forwarded(req) || c.authn == nil {
		return ""
	}
	// On a clone, because the authenticator removes the headers of a front proxy.
	response, ok, err := notAnonymous(c.authn).AuthenticateRequest(req.Clone(req.Context()))
	if !ok || err != nil {
		return ""
	}
	return holderOf(req, response.User)
}

// Holders of credentials that assert other users: those of replicas, and the certificate
// of a front proxy.
const (
	replicas   = "\x00replicas"
	frontProxy = "\x00front-proxy"
)

// holderOf is the user whom a request's credentials authenticate. A certificate that authenticates
// another user than its subject is that of a front proxy.
func holderOf(req *http.Request, u user.Info) string {
	switch {
	case Forwarded(req):
		return replicas
	case bearerToken(req) == "" && commonName(req) != "" && commonName(req) != u.GetName():
		return frontProxy
	}
	return u.GetName()
}

// commonName is that of a request's client certificate.
func commonName(req *http.Request) string {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return ""
	}
	return req.TLS.PeerCertificates[0].Subject.CommonName
}

// notAnonymous returns an authenticator that rejects anonymous users.
func notAnonymous(authn authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := authn.AuthenticateRequest(req)
		if ok && err == nil && (response.User.GetName() == user.Anonymous || slices.Contains(response.User.GetGroups(), user.AllUnauthenticated)) {
			return nil, false, nil
		}
		return response, ok, err
	})
}
