package intake

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/klog/v2"
)

// withAuthentication authenticates requests. It responds 401 to bad credentials, 503 if
// the review of the apiserver failed, and 429 if there are too many reviews: clients
// retry after 503 and 429, and not after 401.
func withAuthentication(next http.Handler, authn authenticator.Request, control *flowControl) http.Handler {
	unauthorized := filters.Unauthorized(codecs)
	failed := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := callOf(req.Context()).authnErr
		open := err != nil && Undecided(err)
		if err != nil {
			klog.FromContext(req.Context()).V(4).Info("Did not authenticate the request", "undecided", open, "reason", err)
		}
		switch {
		case errors.Is(err, errReviews):
			control.refuse(w, req, refusedReviews)
		case open:
			refuse(w, req, unavailable(whyUndecided(err)))
		default:
			unauthorized.ServeHTTP(w, req)
		}
	})
	return filters.WithAuthentication(next, keepError{authn}, failed, nil, nil)
}

// keepError hides errors from the filter, which logs each of them, and keeps them for
// the response.
type keepError struct{ authenticator.Request }

func (k keepError) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := k.Request.AuthenticateRequest(req)
	if err != nil {
		callOf(req.Context()).authnErr = err
		return nil, false, nil
	}
	return response, ok, nil
}

// whyUndecided is the text for the client.
func whyUndecided(err error) string {
	var own OwnTokenError
	if errors.As(err, &own) {
		return "the caller cannot be authenticated: " + own.Error()
	}
	return "the apiserver cannot be reached to authenticate the caller"
}

// Undecided reports whether an error of an authenticator leaves open who the caller is: an
// error of the authentication itself, and not one about bad credentials.
// Authenticators have no types for the two. The error of a TokenReview about a token is
// plain text, and so is that of a token that no authenticator accepts
// (authentication/request/bearertoken); a certificate that does not verify has an error
// of crypto/x509. A failed request to the apiserver has another type, except for a few
// texts and for a cancelled context.
func Undecided(err error) bool {
	if errors.Is(err, errAssertion) {
		return false
	}
	if aggregate, ok := err.(utilerrors.Aggregate); ok {
		return slices.ContainsFunc(aggregate.Errors(), Undecided)
	}
	var request *url.Error
	if errors.As(err, &request) || errors.Is(err, context.Canceled) {
		return true
	}
	if reflect.TypeOf(err) == plainText {
		return slices.ContainsFunc(undecidedTexts, func(text string) bool { return strings.HasPrefix(err.Error(), text) })
	}
	return !badCredentials(err)
}

var plainText = reflect.TypeOf(errors.New(""))

// undecidedTexts are prefixes of the plain-text errors of a failed TokenReview.
var undecidedTexts = []string{
	"authentication failed unexpectedly", // apiserver: token/cache, after a panic
	"webhook call failed: ",              // apiserver: util/webhook, out of time
	"0-length response with status code", // client-go: rest, no body
	"serializer for ",                    // client-go: rest, unknown format
	"couldn't get version/kind",          // apimachinery: not an object
}

// badCredentials reports whether an error is about the credentials of the caller.
func badCredentials(err error) bool {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		critical  x509.UnhandledCriticalExtension
		weak      x509.InsecureAlgorithmError
		encoding  base64.CorruptInputError
	)
	return errors.As(err, &invalid) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &critical) || errors.As(err, &weak) || errors.As(err, &encoding)
}
