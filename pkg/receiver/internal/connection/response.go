package connection

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/eventd/eventd/pkg/receiver"
)

// maxQuoted is how much of a destination's text is in an error, in bytes.
const maxQuoted = 200

// Response is an answer to a request.
type Response struct {
	Status int
	Header http.Header
	// Body has at most MaxResponseBytes.
	Body []byte
	// BodyErr is why the body is not whole.
	BodyErr error
}

// Err returns nil if the destination has accepted the request, and else a *receiver.Error.
//
// 400, 413 and 422 are about what is in the request, so it would be refused again, unless the server
// says by 400 that it expects TLS. All else may be accepted later: the destination is overloaded or
// away (408, 429, 5xx), or this client or the destination is not configured as it should be (3xx,
// 401, 403, 404 and so on), and no Event is to be lost for that.
func (r *Response) Err() error {
	if r.Status/100 == 2 {
		return nil
	}
	err := &receiver.Error{Err: fmt.Errorf("status %d: %s", r.Status, Quote(string(r.Body)))}
	switch {
	case r.Status == http.StatusBadRequest && r.isAboutTLS():
	case r.Status == http.StatusBadRequest || r.Status == http.StatusRequestEntityTooLarge || r.Status == http.StatusUnprocessableEntity:
		err.Permanent = true
	case r.Status/100 == 3:
		err.Err = fmt.Errorf("status %d: redirects are not followed", r.Status)
	default:
		err.RetryAfter = RetryAfter(r.Header.Get("Retry-After"), time.Now())
	}
	return err
}

// aboutTLS are how the answers of servers begin that expect TLS, or the certificate of a client.
var aboutTLS = []string{
	"Client sent an HTTP request to an HTTPS server.",                          // those in Go
	"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port", // nginx
	"<html>\r\n<head><title>400 No required SSL certificate was sent",
	"<html>\r\n<head><title>400 The SSL certificate error",
}

// isAboutTLS reports whether a 400 is not about what is in the request. Only how the body begins
// says so: what follows may quote an Event.
func (r *Response) isAboutTLS() bool {
	return slices.ContainsFunc(aboutTLS, func(text string) bool { return strings.HasPrefix(string(r.Body), text) })
}

// Quote returns the beginning of a text from a destination, as it can be logged.
func Quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q...", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}
